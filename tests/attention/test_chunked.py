"""Attention within chunks against softmax under the mask of its definition."""

import pathlib

import numpy as np
import pytest

from keras_transformer.attention import ChunkedAttention, MultiHeadAttention

HEADS, KEY_DIM, WIDTH = 2, 4, 8


def pattern(length, chunk, before, after, causal):
    places = np.arange(length)
    apart = places[None] // chunk - places[:, None] // chunk
    mask = (apart >= -before) & (apart <= after)
    return mask & (places[None] <= places[:, None]) if causal else mask


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("before, after", [(1, 0), (0, 0), (2, 1)])
def test_is_softmax_under_its_mask(before, after, causal):
    random = np.random.default_rng(0)
    mechanism = ChunkedAttention(4, before, after)
    chunked = MultiHeadAttention(HEADS, KEY_DIM, mechanism=mechanism, position="rotary")
    whole = MultiHeadAttention(HEADS, KEY_DIM, position="rotary")
    for layer in (chunked, whole):
        layer.build((None, None, WIDTH), (None, None, WIDTH))
    whole.set_weights(chunked.get_weights())
    for length in (1, 4, 13):
        x = random.normal(size=(2, length, WIDTH)).astype("float32")
        real = random.random((2, length)) < 0.8
        mask = pattern(length, 4, before, 0 if causal else after, causal)
        for padding in (None, real):
            found = chunked(x, x, value_mask=padding, use_causal_mask=causal)
            expected = whole(x, x, query_mask=padding, value_mask=padding, attention_mask=mask)
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_local_layer_of_the_reference():
    """The context has no output projection, and scores no bias: the kernels are those of transformers' Reformer."""
    golden = np.load(pathlib.Path(__file__).parents[1] / "data" / "reformer.npz")
    x, prefix = golden["outputs/local_input"], "params/encoder.layers.0.attention.self_attention"
    layer = MultiHeadAttention(2, 8, use_bias=False, mechanism=ChunkedAttention(8, 1, 0))
    layer.build(x.shape, x.shape)
    kernels = [golden[f"{prefix}.{name}.weight"].T.reshape(16, 2, 8) for name in ("query", "key", "value")]
    layer.set_weights([*kernels, np.eye(16).reshape(2, 8, 16)])
    np.testing.assert_allclose(layer(x, x, use_causal_mask=True), golden["outputs/local_context"], atol=1e-5)


def test_numbers_out_of_range():
    with pytest.raises(ValueError, match="chunks_before"):
        ChunkedAttention(4, -1)
    with pytest.raises(ValueError, match="chunk_length"):
        ChunkedAttention(0)
