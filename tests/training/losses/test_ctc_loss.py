"""CTCLoss, against the sum over all alignments in float64."""

import itertools

import keras
import numpy as np
import pytest

from keras_transformer.training import CTCLoss

RNG = np.random.default_rng(0)
V = 4


def text_of(alignment, blank_id):
    return [token for token, _ in itertools.groupby(alignment) if token != blank_id]


def loss_of_all_alignments(logits, text, blank_id):
    logits = logits.astype("float64")
    chances = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    total = sum(
        np.prod(chances[np.arange(len(logits)), alignment])
        for alignment in itertools.product(range(V), repeat=len(logits))
        if text_of(alignment, blank_id) == text
    )
    return -np.log(total)


@pytest.mark.parametrize("blank_id", [0, 2, V - 1])
def test_is_that_of_all_alignments(blank_id):
    letters = [token for token in range(V) if token != blank_id]
    texts = [[letters[0]], [letters[1], letters[1]], [letters[2], letters[0], letters[1]], []]
    labels = np.array([text + [-100] * (3 - len(text)) for text in texts])
    logits = RNG.normal(size=(4, 5, V)).astype("float32")
    expected = [loss_of_all_alignments(*row, blank_id) for row in zip(logits, texts, strict=True)]
    np.testing.assert_allclose(CTCLoss(blank_id).call(labels, logits), expected, rtol=2e-6)
    np.testing.assert_allclose(CTCLoss(blank_id)(labels, logits), np.mean(expected), rtol=2e-6)
    per_token = np.array(expected) / [1, 2, 3, 1]
    np.testing.assert_allclose(CTCLoss(blank_id, per_token=True)(labels, logits), np.mean(per_token), rtol=2e-6)


def test_padding_that_is_blank_changes_nothing():
    logits, labels = RNG.normal(size=(1, 4, V)).astype("float32"), np.array([[1, 3, 3]])
    padding = np.where(np.arange(V) == 0, 0.0, -1e9).astype("float32")
    padded = np.concatenate([logits, np.tile(padding, (1, 30, 1))], axis=1)
    np.testing.assert_allclose(CTCLoss()(labels, padded), CTCLoss()(labels, logits), rtol=2e-6)


def gradient(labels, logits):
    """Of one step of plain gradient descent on the logits themselves."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(logits[0].size, use_bias=False)])
    model.add(keras.layers.Reshape(logits.shape[1:]))
    model.layers[0].set_weights([logits.reshape(1, -1)])
    model.compile(keras.optimizers.SGD(1.0), CTCLoss(ignore_id=-1), jit_compile=False)
    model.train_on_batch(np.ones((1, 1)), labels)
    return (logits.reshape(1, -1) - model.get_weights()[0]).reshape(logits.shape)


def test_gradient_is_that_of_all_alignments():
    logits, labels = RNG.normal(size=(1, 3, V)).astype("float32"), np.array([[2, 2, -1]])
    step = 1e-5
    found, expected = gradient(labels, logits), np.zeros(logits.shape)
    for index in np.ndindex(*logits.shape):
        moved = []
        for sign in (1, -1):
            changed = logits.astype("float64")
            changed[index] += sign * step
            moved.append(loss_of_all_alignments(changed[0], [2, 2], 0))
        expected[index] = (moved[0] - moved[1]) / (2 * step)
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize("text", [[1, 2, 3, 1], [1, 1, 2]], ids=["tokens", "repetitions"])
def test_text_without_an_alignment_has_no_loss_and_no_gradient(text):
    logits = RNG.normal(size=(1, 3, V)).astype("float32")
    labels = np.array([text])
    assert float(CTCLoss()(labels, logits)) == 0.0
    np.testing.assert_array_equal(gradient(labels, logits), np.zeros(logits.shape, "float32"))
    # The same if the frames that lack are padding.
    padding = np.tile(np.where(np.arange(V) == 0, 0.0, -1e9).astype("float32"), (1, 5, 1))
    assert float(CTCLoss()(labels, np.concatenate([logits, padding], axis=1))) == 0.0


def test_config_is_complete():
    loss = CTCLoss(blank_id=3, ignore_id=-7, per_token=True, name="other")
    assert CTCLoss.from_config(loss.get_config()).get_config() == loss.get_config()
    assert loss.get_config() == {"blank_id": 3, "ignore_id": -7, "per_token": True, "name": "other"}
