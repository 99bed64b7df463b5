"""Choice between texts: every one is scored as if it stood alone."""

import keras
import numpy as np
import pytest

from keras_transformer import load_model, models, tasks

SIZE = models.Size(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
IDS = np.array([[[3, 1, 4], [1, 5, 9], [2, 6, 0]], [[5, 3, 5], [8, 0, 0], [9, 7, 9]]], "int32")
INPUTS = {"token_ids": IDS, "padding_mask": IDS > 0}


@pytest.fixture
def scorer():
    backbone = models.Encoder(SIZE, 11, max_sequence_length=16)
    model = tasks.SequenceClassifier(backbone, 1, pooling="first", activation=None)
    for variable in model.trainable_variables:
        variable.assign(variable + 0.3 * keras.random.normal(variable.shape))
    return model


def test_a_choice_is_scored_as_if_it_stood_alone(scorer, tmp_path):
    model = tasks.MultipleChoice(scorer)
    logits = np.asarray(model(INPUTS))
    assert logits.shape == (2, 3)
    for row in range(2):
        alone = scorer({name: array[row] for name, array in INPUTS.items()})
        np.testing.assert_allclose(logits[row], np.asarray(alone)[:, 0], atol=1e-6)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(load_model(tmp_path / "model.keras")(INPUTS), logits)


def test_it_learns_to_choose(scorer):
    model = tasks.MultipleChoice(scorer)
    model.compile(keras.optimizers.Adam(0.03), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    first, *_, last = (model.train_on_batch(INPUTS, np.array([1, 2])) for _ in range(12))
    assert last < 0.2 * first


def test_what_gives_no_single_number_is_refused():
    backbone = models.Encoder(SIZE, 11)
    with pytest.raises(ValueError, match=r"\(B, 1\)"):
        tasks.MultipleChoice(tasks.SequenceClassifier(backbone, 2))
