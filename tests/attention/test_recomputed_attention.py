"""Attention whose weights are computed again in the backward pass: gradients by the formula, and what is kept for it."""

import math

import keras
import numpy as np
import pytest
from graph_order import ancestors
from keras import ops

from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.softmax.causal_blocks import QueryBlock, recomputed_attention
from keras_transformer.backend.gradients.vjp import vjp

BATCH, LENGTH, WIDTH, VALUE_WIDTH = 2, 256, 4, 6  # Two causal blocks.
RANDOM = np.random.default_rng(0)
STEPS = np.arange(LENGTH)
MASKS = {
    "causal": {},
    "padding": {"key_mask": np.array([[True], [False]]) | (STEPS < 150)},
    "window": {"window": 100},
    "segment ids": {"segment_ids": np.repeat([[1, 2], [1, 0]], 128, axis=1)},
}


def arrays(heads, key_heads):
    shapes = (heads, WIDTH), (key_heads, WIDTH), (key_heads, VALUE_WIDTH), (heads, VALUE_WIDTH)
    return [RANDOM.normal(size=(BATCH, LENGTH, *shape)) for shape in shapes]


def allowed(options):
    """Returns which keys a query attends to, `(B, T, S)`."""
    segments = options.get("segment_ids", np.ones((BATCH, LENGTH), int))
    distance = STEPS[:, None] - STEPS
    seen = (distance >= 0) & (distance < options.get("window", LENGTH))
    seen = seen & (segments[:, :, None] == segments[:, None]) & (segments[:, :, None] > 0)
    return seen & options.get("key_mask", np.ones((BATCH, LENGTH), bool))[:, None]


def by_formula(query, key, value, upstream, seen, scale=0.5):
    """Returns the context and the gradients of query, key and value in float64, with all scores at once."""
    group = query.shape[2] // key.shape[2]
    keys, values = (np.repeat(x, group, axis=2) for x in (key, value))
    exponentials = np.exp(scale * np.einsum("btnh,bsnh->bnts", query, keys)) * seen[:, None]
    weights = exponentials / np.maximum(exponentials.sum(-1, keepdims=True), 1e-300)
    of_weights = np.einsum("btnh,bsnh->bnts", upstream, values)
    of_scores = scale * weights * (of_weights - (weights * of_weights).sum(-1, keepdims=True))
    of_heads = np.einsum("bnts,btnh->bsnh", of_scores, query), np.einsum("bnts,btnh->bsnh", weights, upstream)
    of_groups = (x.reshape(BATCH, LENGTH, -1, group, x.shape[-1]).sum(3) for x in of_heads)
    return np.einsum("bnts,bsnh->btnh", weights, values), np.einsum("bnts,bsnh->btnh", of_scores, keys), *of_groups


def attend(query, key, value, upstream, policy="float32", training=True, **options):
    """Returns the context and the gradients of a layer, which are in closed form in training only."""
    layer = SoftmaxAttention(flash_attention=False, dtype=policy)
    visibility = Visibility.from_slots(STEPS, STEPS, causal=True, **options)
    inputs = [ops.cast(x, layer.compute_dtype) for x in (query, key, value, upstream)]
    found, pullback = vjp(lambda *tensors: layer(*tensors, visibility=visibility, training=training), *inputs[:3])
    return found, *pullback(inputs[3])


def attended(*arguments, **options):
    return [ops.convert_to_numpy(ops.cast(x, "float32")) for x in attend(*arguments, **options)]


@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("name", MASKS)
def test_gradients_are_those_of_the_formula(name, heads):
    given = arrays(*heads)
    found = attended(*given, **MASKS[name])
    for ours, expected in zip(found, by_formula(*given, allowed(MASKS[name])), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_rounds_about_as_the_automatic_gradient(policy):
    given = [np.array(ops.cast(ops.cast(x, policy[6:]), "float32"), "float64") for x in arrays(6, 2)]
    expected = by_formula(*given, allowed({}))
    found, automatic = (attended(*given, policy, training) for training in (True, False))
    for ours, theirs, exact in zip(found, automatic, expected, strict=True):
        # The context in its sums is rounded.
        assert np.abs(ours - exact).mean() < 1.25 * np.abs(theirs - exact).mean()
        assert np.abs(ours - exact).max() < 0.02 * np.abs(exact).max()


def test_blocks_of_whole_rows_are_one_block():
    query, key, value, upstream = (ops.array(x[:, :7], "float32") for x in arrays(4, 2))

    def results(*ends):
        blocks = [QueryBlock(*pair, 7, Visibility()) for pair in zip((0, *ends), ends, strict=False)]
        found, pullback = vjp(lambda *x: recomputed_attention(*x, blocks), query, key, value)
        return [ops.convert_to_numpy(x) for x in (found, *pullback(upstream))]

    for parts, whole in zip(results(2, 3, 7), results(7), strict=True):
        np.testing.assert_allclose(parts, whole, atol=2e-6)


def kept_by_tensorflow(function, *inputs):
    """Returns the numbers of elements of the float tensors of the forward pass that the backward pass reads."""
    import tensorflow as tf

    def step(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            context = function(*inputs)
        forward = {operation.name for operation in context.graph.get_operations()}
        gradients = tape.gradient(context, inputs)
        for operation in context.graph.get_operations():
            reads = [] if operation.name in forward else operation.inputs
            kept.update({x.name: math.prod(x.shape) for x in reads if x.op.name in forward and x.dtype.is_floating})
        return gradients

    kept = {}
    tf.function(step).get_concrete_function(*inputs)
    return list(kept.values())


def kept_by_jax(function, *inputs):
    """Returns the numbers of elements of the residuals of `jax.vjp`."""
    import jax

    return [x.size for x in jax.tree.leaves(jax.vjp(function, *inputs)[1]) if x.dtype.kind == "f"]


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="reads what TensorFlow and JAX keep")
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_backward_pass_keeps_no_weights(name, dropout):
    layer, visibility = (
        SoftmaxAttention(dropout=dropout),
        Visibility.from_slots(STEPS, STEPS, causal=True, **MASKS[name]),
    )
    kept_elements = {"tensorflow": kept_by_tensorflow, "jax": kept_by_jax}[keras.backend.backend()]
    inputs = [ops.array(x, "float32") for x in arrays(4, 4)[:3]]
    kept = kept_elements(lambda *x: layer(*x, visibility=visibility, training=True), *inputs)
    largest, block = BATCH * LENGTH * 4 * VALUE_WIDTH, BATCH * 4 * 128 * 128
    if dropout > 0.0:  # Its way is the automatic gradient, which shows that the test can fail.
        assert max(kept) >= block
    else:
        assert 0 < max(kept) <= largest


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="other backends always compile or never do")
def test_a_compiled_step_has_the_same_gradients():
    import tensorflow as tf

    given = arrays(6, 2)
    compiled = tf.function(lambda: attend(*given), jit_compile=True)
    for ours, expected in zip(compiled(), by_formula(*given, allowed({})), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="other backends always compile or never do")
def test_the_keys_of_a_block_are_copied_after_the_block_before():
    import tensorflow as tf

    blocks = [QueryBlock(end - 2, end, end, Visibility()) for end in (2, 4, 6, 8)]
    inputs = [tf.TensorSpec((1, 8, heads, 3)) for heads in (4, 2, 2, 4)]

    def step(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            context = recomputed_attention(*inputs[:3], blocks)
        boundaries.append(len(context.graph.get_operations()))
        return context, tape.gradient(context, inputs[:3], inputs[3])

    boundaries = []
    operations = tf.function(step).get_concrete_function(*inputs).graph.get_operations()
    for part in (operations[: boundaries[-1]], operations[boundaries[-1] :]):
        copies = {}
        for each in part:
            if each.type == "StridedSlice" and each.outputs[0].shape[1:2] == (2,):
                copies.setdefault(each.outputs[0].shape[2], []).append(each)
        assert {length: len(found) for length, found in copies.items()} == {2: 2, 4: 2, 6: 2, 8: 2}  # Keys and values.
        for length in (4, 6, 8):
            assert all(copies[length - 2][0].name in ancestors(each) for each in copies[length])
