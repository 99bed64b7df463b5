"""Random spans of hidden frames and features."""

import keras
import numpy as np
import pytest

from keras_transformer.audio import SpanMasking

LENGTHS = np.array([40, 25, 6, 2])
MASK = np.arange(40) < LENGTHS[:, None]
X = np.random.default_rng(0).normal(size=(4, 40, 12)).astype("float32")


def runs(row):
    """Lengths of the spans of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return (edges[1::2] - edges[::2]).tolist()


def test_hidden_frames_are_spans_of_real_frames():
    layer = SpanMasking(0.5, span_length=5, min_spans=1, seed=3)
    layer.build(X.shape)
    counts = np.zeros((30, 4), int)
    for trial in range(30):
        masked, hidden = (np.array(each) for each in layer(X, padding_mask=MASK, training=True))
        assert not (hidden & ~MASK).any()
        np.testing.assert_array_equal(masked[~hidden], X[~hidden])
        expected = np.broadcast_to(np.array(layer.mask_embedding), masked[hidden].shape)
        np.testing.assert_array_equal(masked[hidden], expected)
        assert all(length >= 5 for row in hidden for length in runs(row))
        counts[trial] = hidden.sum(axis=1)
    # 0.5 * 40 / 5 = 4 spans, or 5 with probability 0; those of 25 are 2 or 3, of 6 one; none has room in 2.
    assert counts[:, 0].max() == 20
    assert 11 <= counts[:, 0].mean() < 20
    assert set(counts[:, 1]) <= set(range(6, 16))
    assert (counts[:, 2] == 5).all()
    assert (counts[:, 3] == 0).all()
    assert len({tuple(row) for row in counts}) > 10, "each call draws its own"


def test_starts_are_uniform():
    layer = SpanMasking(0.1, span_length=2, min_spans=1, seed=0)
    x = np.zeros((4000, 5, 1), "float32")
    hidden = np.array(layer(x, training=True)[1])
    assert (hidden.sum(axis=1) == 2).all()
    share = np.bincount(hidden.argmax(axis=1), minlength=4) / len(x)
    np.testing.assert_allclose(share, 0.25, atol=0.03)


def test_features_are_hidden_in_all_frames_of_a_row():
    layer = SpanMasking(0.0, feature_probability=0.3, feature_span_length=3, min_feature_spans=2, seed=1)
    masked, hidden = (np.array(each) for each in layer(X, padding_mask=MASK, training=True))
    assert not hidden.any()
    zero = (masked == 0).all(axis=1)
    np.testing.assert_array_equal(masked, np.where(zero[:, None], 0, X))
    assert all(4 <= count <= 6 for count in zero.sum(axis=1))


@pytest.mark.parametrize("training", [False, None])
def test_nothing_is_hidden_outside_of_training(training):
    masked, hidden = SpanMasking(0.9, span_length=2)(X, training=training)
    np.testing.assert_array_equal(masked, X)
    assert not np.array(hidden).any()


def test_dynamic_lengths_in_a_model():
    inputs = keras.Input((None, 12))
    model = keras.Model(inputs, SpanMasking(0.5, span_length=3, seed=0)(inputs))
    masked, hidden = model(X, training=True)
    assert masked.shape == X.shape
    assert np.array(hidden).any()
