"""What every head on an encoder must do: padding changes nothing, it comes back from a file, it trains, it stays float32."""

import keras
import numpy as np
import pytest

from keras_transformer import load_model, models
from keras_transformer.tasks.text.masked_language_model import MaskedLanguageModel
from keras_transformer.tasks.text.pair_classifier import PairClassifier
from keras_transformer.tasks.text.pair_matcher import PairMatcher
from keras_transformer.tasks.text.replaced_token_detector import ReplacedTokenDetector
from keras_transformer.tasks.text.sentence_embedder import SentenceEmbedder
from keras_transformer.tasks.text.sequence_classifier import SequenceClassifier
from keras_transformer.tasks.text.span_answerer import SpanAnswerer
from keras_transformer.tasks.text.tagger import Tagger
from keras_transformer.training import MaskedCrossentropy

SIZE = models.Size(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
VOCABULARY_SIZE = 11
LENGTHS = (5, 3)


def encoder(num_segments=None):
    return models.Encoder(SIZE, VOCABULARY_SIZE, max_sequence_length=16, num_segments=num_segments, dropout=0.1)


def crossentropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


# How to make each model, and a loss and labels to train it with. -100 is no label.
TOKENS = np.array([[3, -100, 1, 0, 2, -100], [1, 0, -100, -100, -100, -100]])
TASKS = {
    "first": (
        lambda: SequenceClassifier(encoder(), 3, pooling="first", hidden_dim=6),
        "sparse_categorical_crossentropy",
        np.array([0, 2]),
    ),
    "mean": (lambda: SequenceClassifier(encoder(), 3), "sparse_categorical_crossentropy", np.array([0, 2])),
    "max": (
        lambda: SequenceClassifier(encoder(), 3, pooling="max", activation="sigmoid"),
        "binary_crossentropy",
        np.eye(3)[:2],
    ),
    "attention": (
        lambda: SequenceClassifier(encoder(), 3, pooling="attention", activation=None),
        MaskedCrossentropy,
        np.array([0, 2]),
    ),
    "pair_classifier": (
        lambda: PairClassifier(encoder(num_segments=2), 2),
        "sparse_categorical_crossentropy",
        np.array([0, 1]),
    ),
    "pair_matcher": (lambda: PairMatcher(encoder(), 3), "sparse_categorical_crossentropy", np.array([0, 2])),
    "cosine": (lambda: PairMatcher(encoder(), pooling="attention"), "mse", np.array([1.0, -1.0])),
    "tagger": (lambda: Tagger(encoder(), 4), MaskedCrossentropy, TOKENS),
    "span_answerer": (
        lambda: SpanAnswerer(encoder(num_segments=2)),
        lambda: {"start_logits": crossentropy(), "end_logits": crossentropy()},
        {"start_logits": np.array([2, 1]), "end_logits": np.array([4, 2])},
    ),
    "replaced_token_detector": (
        lambda: ReplacedTokenDetector(encoder()),
        lambda: keras.losses.BinaryCrossentropy(from_logits=True),
        np.array([[0, 1, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0]], "float32"),
    ),
    "sentence_embedder": (lambda: SentenceEmbedder(encoder(), pooling=["mean", "max"]), "mse", np.eye(16)[:2]),
    "gelu": (
        lambda: SequenceClassifier(encoder(), 3, hidden_dim=6, hidden_activation="gelu_tanh"),
        "sparse_categorical_crossentropy",
        np.array([0, 2]),
    ),
    "without_transform": (lambda: MaskedLanguageModel(encoder(), transform=False), MaskedCrossentropy, TOKENS),
    "masked_language_model": (lambda: MaskedLanguageModel(encoder()), MaskedCrossentropy, TOKENS),
    "untied": (lambda: MaskedLanguageModel(encoder(), tie_embeddings=False), MaskedCrossentropy, TOKENS),
    "selected": (
        lambda: MaskedLanguageModel(encoder(), selected_positions=True),
        MaskedCrossentropy,
        np.array([[3, 1], [2, -100]]),
    ),
}


@pytest.fixture(params=TASKS)
def task(request):
    return request.param


@pytest.fixture
def model(task):
    return TASKS[task][0]()


def inputs_of(model, padding):
    """Two rows of real tokens, and `padding` more of anything."""
    random = np.random.default_rng(0)
    length = max(LENGTHS) + padding
    real = np.arange(length) < np.array(LENGTHS)[:, None]
    ids = np.zeros((2, length), "int32")
    ids[real] = random.integers(1, VOCABULARY_SIZE, real.sum())
    ids[~real] = np.random.default_rng(padding).integers(1, VOCABULARY_SIZE, (~real).sum())
    arrays = {}
    for tensor in keras.tree.flatten(model.input):
        if tensor.name.endswith("token_ids"):
            arrays[tensor.name] = VOCABULARY_SIZE - ids if "second" in tensor.name else ids
        elif tensor.name.endswith("padding_mask"):
            arrays[tensor.name] = real
        elif tensor.name == "segment_ids":
            arrays[tensor.name] = np.where(np.arange(length) > 1, 1, 0)[None].repeat(2, 0).astype("int32")
        else:
            arrays[tensor.name] = np.array([[1, 4], [2, 0]], "int32")
    return arrays


def outputs(model, arrays):
    return [np.asarray(each) for each in keras.tree.flatten(model(arrays))]


def test_padding_changes_nothing(model):
    length = max(LENGTHS)
    for short, long in zip(outputs(model, inputs_of(model, 0)), outputs(model, inputs_of(model, 4)), strict=True):
        per_token = long.ndim > 1 and long.shape[1] == length + 4
        for row, count in enumerate(LENGTHS):
            kept = (row, slice(0, count)) if per_token else row
            np.testing.assert_allclose(long[kept], short[kept], atol=1e-6 * np.abs(short).max())


def test_comes_back_from_a_file(model, tmp_path):
    for variable in model.trainable_variables:
        variable.assign(variable + 0.1 * keras.random.normal(variable.shape))
    arrays = inputs_of(model, 2)
    model.save(tmp_path / "model.keras")
    for found, wanted in zip(
        outputs(load_model(tmp_path / "model.keras"), arrays), outputs(model, arrays), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_output_is_float32_and_finite_in_mixed_precision(task, policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = TASKS[task][0]()
    finally:
        keras.config.set_dtype_policy("float32")
    blocks = [layer for layer in model._flatten_layers() if layer.name == "encoder_block_0"]
    assert blocks[0].compute_dtype == policy.removeprefix("mixed_")
    for output in outputs(model, inputs_of(model, 3)):
        assert output.dtype == "float32"
        assert np.isfinite(output).all()


def test_one_step_reaches_every_weight(task, model):
    _, loss, labels = TASKS[task]
    before = [np.asarray(weight) for weight in model.trainable_variables]
    model.compile(keras.optimizers.SGD(0.1), loss if isinstance(loss, str) else loss())
    assert np.isfinite(model.train_on_batch(inputs_of(model, 1), labels)).all()
    for weight, old in zip(model.trainable_variables, before, strict=True):
        assert np.isfinite(np.asarray(weight)).all(), weight.path
        # A softmax does not see what all keys share.
        if not weight.path.endswith("key/bias"):
            assert np.abs(np.asarray(weight) - old).max() > 0, weight.path
