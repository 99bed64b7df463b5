import numpy as np
import pytest
from keras import ops

from keras_transformer import plots
from keras_transformer.attention import (
    LocalAttention,
    Mechanism,
    MultiHeadAttention,
    SoftmaxAttention,
    SubspaceAttention,
)
from keras_transformer.plots.attention_pattern import attention_weights

N = 12
DISTANCE = np.arange(N)[:, None] - np.arange(N)


def drawn(axes):
    return np.asarray(axes.get_images()[0].get_array())


def test_weights_are_those_of_the_mechanism():
    weights = attention_weights(SoftmaxAttention(scoring="dot"), N, key_dim=4, seed=3)
    query, key = np.random.default_rng(3).normal(size=(2, 1, N, 1, 4)).astype("float32")[:, 0, :, 0]
    scores = np.exp(query @ key.T)
    np.testing.assert_allclose(weights, scores / scores.sum(axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_a_window_is_seen_as_a_band(causal):
    axes, _ = plots.attention_pattern(LocalAttention(window=3), N, causal=causal).axes
    expected = (np.abs(DISTANCE) < 3) & ((DISTANCE >= 0) | (not causal))
    np.testing.assert_array_equal(drawn(axes) > 0, expected)
    np.testing.assert_allclose(drawn(axes).max(axis=1), 1, rtol=1e-6)
    assert axes.get_title() == "LocalAttention"


def test_a_layer_with_projections_is_seen_by_what_moves_it():
    layer = MultiHeadAttention(num_heads=2, key_dim=4, mechanism=LocalAttention(window=3))
    weights = attention_weights(layer, N, causal=True)
    np.testing.assert_array_equal(weights > 0, (DISTANCE >= 0) & (DISTANCE < 3))


def test_a_mechanism_whose_values_are_its_queries_is_probed_with_projections():
    np.testing.assert_array_equal(attention_weights(SubspaceAttention(), N, causal=True) > 0, DISTANCE >= 0)


class LastTokenOnly(Mechanism):
    """Causal by nature, with shared queries and keys: head h sees the token h before its own."""

    supports = frozenset({"causal"})
    shares_key = True

    def attend(self, query, key, value, visibility, position=None, **options):
        np.testing.assert_array_equal(query, key)
        heads = [ops.pad(value[:, :, h], [(0, 0), (h, 0), (0, 0)])[:, :N] for h in range(value.shape[2])]
        return ops.stack(heads, axis=2)


def test_what_any_head_sees_is_drawn():
    np.testing.assert_array_equal(attention_weights(LastTokenOnly(), N, num_heads=3), (DISTANCE >= 0) & (DISTANCE < 3))


def test_several_stand_side_by_side(tmp_path):
    mechanisms = {"all": SoftmaxAttention(), "near": LocalAttention(window=2), "far": LocalAttention(window=6)}
    figure = plots.attention_pattern(mechanisms, N, columns=2)
    *panels, scale = figure.axes
    assert [axes.get_title() for axes in panels] == ["all", "near", "far"]
    assert [(drawn(axes) > 0).sum() for axes in panels] == [N * N, 3 * N - 2, 11 * N - 30]
    assert scale.get_ylabel() == "attention"
    assert [label.get_text() for label in scale.get_yticklabels()] == ["0", "¼", "largest\nof the row"]
    assert (figure.get_supxlabel(), figure.get_supylabel()) == ("keys", "queries")
    assert figure.patch.get_alpha() == 0
    figure.savefig(tmp_path / "patterns.png")
    assert (tmp_path / "patterns.png").read_bytes().startswith(b"\x89PNG")


def test_the_given_mechanism_is_left_alone():
    mechanism = LocalAttention(window=3)
    plots.attention_pattern(mechanism, N)
    assert not mechanism.built


@pytest.mark.parametrize(
    "mechanisms, options, message",
    [
        ({}, {}, "nothing to plot"),
        (SoftmaxAttention(), {"n": 0}, "nothing to plot"),
        (LastTokenOnly(), {"causal": False}, "does not support 'bidirectional'"),
    ],
)
def test_refuses(mechanisms, options, message):
    with pytest.raises(ValueError, match=message):
        plots.attention_pattern(mechanisms, **options)
