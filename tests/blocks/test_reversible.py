"""Reversible blocks: their formula, the gradients of the way back, and what is kept for it."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import ReversibleBlock, ReversibleStack
from keras_transformer.feedforward import DenseFeedForward, MixtureOfExperts

WIDTH, LENGTH = 8, 5


def block(seed=None, dropout=0.0, causal=False):
    mixer = MultiHeadAttention(2, 4, dropout=dropout, seed=seed, position="rotary")
    feedforward = DenseFeedForward(12, "gelu", dropout=dropout, seed=seed)
    return ReversibleBlock(mixer, feedforward, causal, dropout=dropout, seed=seed)


def stack(count=3, **options):
    reversible = options.pop("reversible", True)
    layer = ReversibleStack([block(**options) for _ in range(count)], reversible=reversible)
    layer.build((2, LENGTH, WIDTH))
    return layer


def tokens(length=LENGTH):
    return np.random.default_rng(0).normal(size=(2, length, WIDTH)).astype("float32")


MASK = np.array([[True] * LENGTH, [True, True, True, False, False]])


def gradients(layer, x, **options):
    """Output, and the gradients of x and of all weights, of `sum(output * direction)` in training."""
    direction = np.random.default_rng(1).normal(size=(*x.shape[:2], 2 * WIDTH)).astype("float32")
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = layer(x, training=True, **options)
            loss = tf.reduce_sum(output * direction)
        found = tape.gradient(loss, [x, *(variable.value for variable in layer.trainable_variables)])
        return [np.asarray(value) for value in (output, *found)]
    import jax

    others = [variable.value for variable in layer.non_trainable_variables]

    def loss(x, weights):
        output, _ = layer.stateless_call(weights, others, x, training=True, **options)
        return (output * direction).sum(), output

    weights = [variable.value for variable in layer.trainable_variables]
    (_, output), (for_x, for_weights) = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(x, weights)
    return [np.asarray(value) for value in (output, for_x, *for_weights)]


def test_streams_are_the_formula():
    layer, x = stack(2), tokens()
    first, second = x, x
    for each in layer.blocks:
        normed = each.mixer_norm(second)
        first = first + each.mixer(normed, normed, value_mask=MASK)
        second = second + each.feedforward(each.feedforward_norm(first))
    expected = ops.concatenate([first, second], axis=-1)
    for training in (False, True):
        np.testing.assert_allclose(layer(x, padding_mask=MASK, training=training), expected, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_kept_activations(causal):
    layer, x = stack(causal=causal), tokens()
    found = gradients(layer, x, padding_mask=MASK)
    layer.reversible = False
    expected = gradients(layer, x, padding_mask=MASK)
    assert len(found) == len(expected) == 2 + len(layer.trainable_variables)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 * max(1.0, np.abs(other).max()))


def test_dropout_is_the_same_both_ways_and_another_at_each_step():
    x = tokens()
    layer = stack(dropout=0.4, seed=3)
    if keras.backend.backend() == "jax":  # A pure call goes on from the same state.
        states = [variable.value for variable in layer.non_trainable_variables]
        weights = [variable.value for variable in layer.trainable_variables]
        one, following = layer.stateless_call(weights, states, x, training=True)
        two, _ = layer.stateless_call(weights, following, x, training=True)
    else:
        one, two = layer(x, training=True), layer(x, training=True)
    assert not np.allclose(one, two)
    # With both from one state, the gradients agree only where the second drawing is the first.
    other = stack(dropout=0.4, seed=3, reversible=False)
    for variable, value in zip(other.variables, layer.variables, strict=True):
        variable.assign(value)
    for one, two in zip(gradients(layer, x), gradients(other, x), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5 * max(1.0, np.abs(two).max()))


def kept(count, reversible):
    """How many numbers of the forward pass the traced graph keeps for the backward pass, but for weights."""
    import tensorflow as tf

    batch = 3  # No weight has an axis of this size.
    layer = stack(count, reversible=reversible)
    marks = []

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = layer(x, training=True)
            marks[:] = [len(tf.compat.v1.get_default_graph().get_operations())]
            loss = tf.reduce_sum(output)
        return tape.gradient(loss, [x, *(variable.value for variable in layer.trainable_variables)])

    operations = step.get_concrete_function(tf.TensorSpec((batch, LENGTH, WIDTH))).graph.get_operations()
    before = set(operations[: marks[0]])
    crossing = {
        tensor.ref(): tensor.shape.num_elements()
        for operation in operations[marks[0] :]
        for tensor in operation.inputs
        if tensor.op in before and tensor.shape.rank and tensor.shape[0] == batch
    }
    return sum(crossing.values())


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="reads a graph of TensorFlow")
def test_what_is_kept_does_not_grow_with_the_blocks():
    both = kept(2, reversible=True)
    assert both == kept(1, reversible=True)
    assert kept(2, reversible=False) > 1.7 * kept(1, reversible=False)
    assert both <= 4 * 3 * LENGTH * WIDTH  # Both streams, together and each.


def test_token_by_token_is_the_whole():
    layer, x = stack(causal=True), tokens()
    whole = np.asarray(layer(x))
    cache, found = layer.init_cache(2, LENGTH), []
    for first, last in ((0, 2), (2, 3), (3, 5)):
        output, cache = layer(x[:, first:last], cache=cache, cache_index=first)
        found.append(np.asarray(output))
    np.testing.assert_allclose(np.concatenate(found, axis=1), whole, atol=1e-5)


def test_what_is_refused():
    with pytest.raises(ValueError, match="batch"):
        ReversibleBlock(MultiHeadAttention(2, 4), DenseFeedForward(12), norm="batch_norm")
    with pytest.raises(ValueError, match="batch"):
        ReversibleStack([ReversibleBlock(MultiHeadAttention(2, 4), MixtureOfExperts(12, 2))])
    one = block()
    with pytest.raises(ValueError, match="distinct"):
        ReversibleStack([one, one])
