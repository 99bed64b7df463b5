"""TensorFlow traces the training step of every task once."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks, text
from keras_transformer.tasks.task_model import TaskModel

SIZE = models.Size(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
IDS = np.ones((2, 4), "int32")
TOKENS = {"token_ids": IDS, "padding_mask": IDS > 0}


def encoder():
    return models.Encoder(SIZE, 11)


def image_classifier():
    model = tasks.ImageClassifier(models.ViT(SIZE, patch_size=4, image_size=8), 3)
    return model, np.zeros((2, 8, 8, 3), "float32"), np.zeros(2, "int32")


CASES = {
    "image_classifier": image_classifier,
    "language_model": lambda: (tasks.LanguageModel(models.Decoder(SIZE, 11)), TOKENS, IDS),
    "sequence_classifier": lambda: (tasks.SequenceClassifier(encoder(), 3), TOKENS, np.zeros(2, "int32")),
    "tagger": lambda: (tasks.Tagger(encoder(), 3), TOKENS, np.zeros((2, 4), "int32")),
    "with tokenizer": lambda: (
        tasks.TextModel.of(tasks.Tagger(encoder(), 3), text.Bytes()),
        TOKENS,
        np.zeros_like(IDS),
    ),
}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="JAX compiles a step once")
def test_a_step_is_traced_once(name, optimizer):
    model, x, y = CASES[name]()
    traced = []

    def loss(labels, outputs):
        traced.append(outputs.shape)
        return keras.losses.sparse_categorical_crossentropy(labels, outputs)

    model.compile(optimizer, loss)
    before = [np.array(weight) for weight in model.trainable_weights]
    for _ in range(2):
        model.train_on_batch(x, y)
    assert len(traced) == 1
    assert model.optimizer.iterations == 2
    assert any((a != np.array(b)).any() for a, b in zip(before, model.trainable_weights, strict=True))


def test_another_optimizer_is_built_for_the_same_model():
    model, x, y = CASES["tagger"]()
    for optimizer in ("sgd", "adam"):
        model.compile(optimizer, "sparse_categorical_crossentropy")
        model.train_on_batch(x, y)
        assert model.optimizer.iterations == 1


def test_it_is_saved_and_copied_as_what_it_is(tmp_path):
    model, x, _ = CASES["tagger"]()
    model.save(tmp_path / "tagger.keras")
    for copy in (keras.models.load_model(tmp_path / "tagger.keras"), keras.models.clone_model(model)):
        assert type(copy) is TaskModel
        copy.set_weights(model.get_weights())
        np.testing.assert_array_equal(copy(x), model(x))
