"""Causal attention in blocks of queries: outputs and gradients of the whole scores, and about half of the products."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.attention import masks
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.softmax import causal_blocks
from keras_transformer.backend.gradients.vjp import vjp

LENGTH = 640  # Five blocks.
RANDOM = np.random.default_rng(0)
QUERY, KEY, VALUE, UPSTREAM = (RANDOM.normal(size=(2, LENGTH, heads, 4)) for heads in (4, 4, 4, 4))
VISIBILITIES = {
    "causal": {},
    "padding": {"key_mask": np.arange(LENGTH) < np.array([[500], [640]])},
    "window": {"window": 200},
    "segments": {"attention_mask": np.repeat(np.arange(8), 80)[:, None] == np.repeat(np.arange(8), 80)},
    "segment ids": {"segment_ids": np.repeat([[1, 2, 3, 4], [1, 1, 1, 0]], 160, axis=1)},
    "queries": {"query_mask": np.arange(LENGTH) > np.array([[0], [300]])},
}


def expected(options):
    """Returns the context by the formula, in float64."""
    scores = np.einsum("btnh,bsnh->bnts", QUERY, KEY) / 2
    steps = np.arange(LENGTH)
    seen = np.broadcast_to(steps[:, None] >= steps, scores.shape).copy()
    seen &= np.abs(steps[:, None] - steps) < options.get("window", LENGTH)
    seen &= options.get("attention_mask", True)
    segments = options.get("segment_ids", np.ones((2, LENGTH), int))
    seen &= ((segments[:, :, None] == segments[:, None]) & (segments[:, :, None] > 0))[:, None]
    seen &= np.asarray(options.get("key_mask", np.ones((2, LENGTH), bool)))[:, None, None]
    seen &= np.asarray(options.get("query_mask", np.ones((2, LENGTH), bool)))[:, None, :, None]
    exponentials = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    weights = exponentials / np.maximum(exponentials.sum(-1, keepdims=True), 1e-300)
    return np.einsum("bnts,bsnh->btnh", weights, VALUE)


def attended(options, training):
    """Returns the context and the gradients of queries, keys and values."""
    layer = SoftmaxAttention(flash_attention=False)
    steps = ops.arange(LENGTH)
    visibility = masks.Visibility.from_slots(steps, steps, causal=True, **options)

    def attend(query, key, value):
        return layer(query, key, value, visibility=visibility, training=training)

    value, pullback = vjp(attend, *(ops.array(x, "float32") for x in (QUERY, KEY, VALUE)))
    return [ops.convert_to_numpy(x) for x in (value, *pullback(ops.array(UPSTREAM, "float32")))]


@pytest.mark.parametrize("name", VISIBILITIES)
def test_outputs_and_gradients_are_those_of_the_whole(name):
    options = VISIBILITIES[name]
    blocks, whole = attended(options, True), attended(options, False)
    np.testing.assert_allclose(blocks[0], expected(options), atol=5e-6)
    for ours, wanted in zip(blocks, whole, strict=True):
        np.testing.assert_allclose(ours, wanted, atol=2e-5)


@pytest.mark.parametrize(("length", "count"), [(100, 1), (255, 1), (256, 2), (300, 2), (640, 5), (1021, 1), (4096, 8)])
def test_the_number_of_blocks(length, count):
    x, steps = keras.KerasTensor((2, length, 4, 4)), ops.arange(length)
    visibility = masks.Visibility.from_slots(steps, steps, causal=True)
    assert causal_blocks.number_of_blocks(x, x, visibility) == count
    assert causal_blocks.number_of_blocks(x, x, masks.Visibility.from_slots(steps, steps)) == 1
    assert causal_blocks.number_of_blocks(keras.KerasTensor((2, None, 4, 4)), x, visibility) == 1


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="reads a graph of TensorFlow")
def test_the_graph_has_no_scores_beyond_the_end_of_a_block():
    import tensorflow as tf

    layer, steps = SoftmaxAttention(), ops.arange(LENGTH)
    visibility = masks.Visibility.from_slots(steps, steps, causal=True)
    spec = tf.TensorSpec((2, LENGTH, 4, 4))
    products = {}
    for training in (True, False):
        step = tf.function(lambda q, k, v, t=training: layer(q, k, v, visibility=visibility, training=t))
        operations = step.get_concrete_function(spec, spec, spec).graph.get_operations()
        shapes = [op.outputs[0].shape for op in operations if op.type == "Softmax"]
        products[training] = sum(shape[-2] * shape[-1] for shape in shapes)
    assert products == {True: 15 * 128 * 128, False: LENGTH * LENGTH}
