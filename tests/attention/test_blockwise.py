"""Blockwise attention against softmax attention: the same result, the same gradients, whatever the blocks."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.attention import BlockwiseAttention, ScaledDot, SoftmaxAttention, Visibility
from keras_transformer.positions import ALiBi, RelativeBias, ShawRelative, TransformerXLRelative


def heads(length, key_length, seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((2, length, 4, 8), (2, key_length, 2, 8), (2, key_length, 2, 6))
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


class WeightedSum(keras.layers.Layer):
    """Trainable queries, keys and values, so that a step of training shows the gradients of the mechanism."""

    def __init__(self, mechanism, arrays, visibility, **options):
        super().__init__()
        self.mechanism, self.visibility, self.options = mechanism, visibility, options
        self.arrays = [self.add_weight(shape=x.shape, initializer=lambda *a, x=x, **k: ops.array(x)) for x in arrays]

    def call(self, factors):
        context = self.mechanism(
            *(ops.convert_to_tensor(x) for x in self.arrays), visibility=self.visibility, **self.options
        )
        return ops.cast(context, factors.dtype) * factors


def gradients(mechanism, arrays, visibility, jit_compile=False, **options):
    """Of the sum of the context, each entry weighted, with respect to query, key and value."""
    layer = WeightedSum(mechanism, arrays, visibility, **options)
    shape = (*arrays[0].shape[:3], arrays[2].shape[3])
    factors = np.random.default_rng(9).normal(size=shape).astype("float32")
    inputs = keras.Input(batch_shape=shape)
    model = keras.Model(inputs, layer(inputs))
    # The sum is linear in the values, so their gradient does not wait for them to be read: TensorFlow's graph optimizer
    # drops that order, and now and then the other gradients see values that are updated already. A norm of all gradients,
    # far below its bound, makes every update wait for all of them.
    optimizer = keras.optimizers.SGD(1.0, global_clipnorm=1e6)
    model.compile(optimizer, loss=lambda _, y: ops.sum(y), jit_compile=jit_compile, run_eagerly=False)
    model.train_on_batch(factors, np.zeros(shape, "float32"))
    return [x - np.asarray(weight) for x, weight in zip(arrays, layer.arrays, strict=True)]


MASKS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": 4},
    "causal_window": {"window": 3, "causal": True},
    "padding": {"key_mask": True, "query_mask": True},
    "dense": {"attention_mask": 3, "causal": True},
    "dense_per_head": {"attention_mask": 4},
}


def visibility(kind, length, key_length):
    rng, options = np.random.default_rng(5), dict(MASKS[kind])
    for name, size in (("query_mask", length), ("key_mask", key_length)):
        if name in options:
            options[name] = rng.uniform(size=(2, size)) > 0.4
    if "attention_mask" in options:
        shape = (2, length, key_length) if options["attention_mask"] == 3 else (2, 4, length, key_length)
        options["attention_mask"] = rng.uniform(size=shape) > 0.4
    slots = (np.arange(n, dtype="int32") for n in (length, key_length))
    return Visibility.from_slots(*slots, **options)


@pytest.mark.parametrize("kind", MASKS)
def test_any_block_sizes_give_softmax(kind):
    for length, key_length in ((1, 9), (13, 13)) + (() if "window" in kind else ((8, 5),)):
        arrays, visible = heads(length, key_length), visibility(kind, length, key_length)
        expected = SoftmaxAttention(flash_attention=False)(*arrays, visibility=visible)
        for sizes in ((4, 3), (16, 5)):
            output = BlockwiseAttention(*sizes)(*arrays, visibility=visible)
            np.testing.assert_allclose(output, expected, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "causal_window", "padding", "dense_per_head"])
def test_gradients_are_those_of_softmax(kind):
    arrays, visible = heads(13, 13), visibility(kind, 13, 13)
    expected = gradients(SoftmaxAttention(flash_attention=False), arrays, visible)
    for result, wanted in zip(gradients(BlockwiseAttention(3, 2), arrays, visible), expected, strict=True):
        np.testing.assert_allclose(result, wanted, atol=1e-5)


POSITIONS = {
    "alibi": ALiBi,
    "relative_bias": lambda: RelativeBias(8, 5, initializer=random(1)),
    "shaw": lambda: ShawRelative(3, initializer=random(1)),
    "shaw_of_keys": lambda: ShawRelative(3, use_values=False, scale=0.4, initializer=random(1)),
    "transformer_xl": lambda: TransformerXLRelative(6, kernel_initializer=random(1), bias_initializer=random(2)),
}


def random(seed):
    return keras.initializers.RandomNormal(stddev=0.7, seed=seed)


def built_position(name):
    position = POSITIONS[name]()
    position.build((2, None, 4, 8), (2, None, 2, 6))
    return position


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["causal", "padding"])
@pytest.mark.parametrize("name", POSITIONS)
def test_what_a_position_adds_and_learns(name, kind):
    """The context, and the gradients of queries, keys, values and of each weight of the position."""
    arrays, visible = heads(9, 9), visibility(kind, 9, 9)
    mechanisms = SoftmaxAttention(ScaledDot(0.7), flash_attention=False), BlockwiseAttention(4, 2, scale=0.7)
    found = []
    for mechanism in mechanisms:
        position = built_position(name)
        before = [np.array(weight) for weight in position.weights]
        context = mechanism(*arrays, visibility=visible, position=position)
        slopes = gradients(mechanism, arrays, visible, position=position)
        learned = [old - np.array(new) for old, new in zip(before, position.weights, strict=True)]
        assert all(np.abs(slope).max() > 1e-3 for slope in learned)
        found.append([ops.convert_to_numpy(context), *slopes, *learned])
    for expected, result in zip(*found, strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["relative_bias", "shaw", "transformer_xl"])
def test_what_a_position_learns_where_the_step_is_compiled(name):
    arrays, visible, found = heads(9, 9), visibility("causal", 9, 9), []
    for jit_compile in (False, True):
        position = built_position(name)
        slopes = gradients(BlockwiseAttention(4, 2), arrays, visible, jit_compile, position=position)
        found.append([*slopes, *map(np.array, position.weights)])
    for expected, result in zip(*found, strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.exhaustive
def test_a_position_whose_places_differ_from_row_to_row():
    arrays, visible = heads(9, 9), visibility("causal", 9, 9)
    places = np.stack([np.arange(9), np.arange(9) * 3]).astype("int32")
    visible = dataclasses.replace(visible, query_positions=places, key_positions=places)
    found = []
    for mechanism in (SoftmaxAttention(flash_attention=False), BlockwiseAttention(4, 2)):
        position = built_position("relative_bias")
        slopes = gradients(mechanism, arrays, visible, position=position)
        found.append([*slopes, np.array(position.embeddings)])
    for expected, result in zip(*found, strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relative_bias", "shaw"])
def test_a_position_learns_in_mixed_precision(name):
    """Alike to within the rounding of bfloat16, in the weights' own dtype."""
    arrays, visible, found = heads(9, 9), visibility("causal", 9, 9), []
    for policy in ("float32", "mixed_bfloat16"):
        position = POSITIONS[name]()
        position.dtype_policy = policy
        position.build((2, None, 4, 8), (2, None, 2, 6))
        before = [np.array(weight) for weight in position.weights]
        gradients(BlockwiseAttention(4, 2, dtype=policy), arrays, visible, position=position)
        found.append([old - np.array(new) for old, new in zip(before, position.weights, strict=True)])
    for expected, result in zip(*found, strict=True):
        np.testing.assert_allclose(result, expected, atol=0.03 * np.abs(expected).max())


def test_scores_far_apart_stay_finite():
    query, key, value = heads(8, 8)
    output = BlockwiseAttention(2, 2)(query * 100, key * 100, value)
    np.testing.assert_allclose(output, SoftmaxAttention()(query * 100, key * 100, value), atol=1e-4)


def test_dropout_drops_its_share_of_the_weights_and_its_gradient_agrees():
    """With values of the identity, the context is the weights: some are zero, the others are scaled up."""
    query, key = (np.random.default_rng(i).normal(size=(4, 32, 2, 8)).astype("float32") for i in range(2))
    identity = np.broadcast_to(np.eye(32, dtype="float32")[None, :, None], (4, 32, 2, 32))
    mechanism = BlockwiseAttention(8, 4, dropout=0.25, seed=3)
    weights = np.asarray(mechanism(query, key, identity))
    dropped = np.asarray(mechanism(query, key, identity, training=True))
    kept = dropped > 0
    assert abs(kept.mean() - 0.75) < 0.02
    assert np.abs(kept.mean(axis=(0, 1, 2)) - 0.75).max() < 0.15  # No key is dropped more than others.
    assert np.abs(kept.mean(axis=(0, 2, 3)) - 0.75).max() < 0.15
    np.testing.assert_allclose(dropped[kept], weights[kept] / 0.75, rtol=1e-5)
    again = np.asarray(mechanism(query, key, identity, training=True))
    assert np.mean((again > 0) != kept) > 0.3


def test_dropout_gradient_is_that_of_what_was_computed():
    """The context is linear in the values: its gradient tells which weights the backward pass dropped."""
    arrays = [x.astype("float32") for x in heads(8, 8)]
    visible = visibility("plain", 8, 8)
    slope = gradients(BlockwiseAttention(2, 4, dropout=0.5, seed=3), arrays, visible, training=True)[2]
    factors = np.random.default_rng(9).normal(size=(2, 8, 4, 6)).astype("float32")
    total = np.sum(
        np.asarray(BlockwiseAttention(2, 4, dropout=0.5, seed=3)(*arrays, visibility=visible, training=True)) * factors
    )
    np.testing.assert_allclose(np.sum(slope * arrays[2]), total, rtol=1e-4)
