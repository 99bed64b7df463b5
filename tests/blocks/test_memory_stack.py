"""Memory around segments: every way of reading, gradients through time, and random numbers inside of the loop."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import LocalAttention, MultiHeadAttention
from keras_transformer.blocks import DecoderBlock, MemoryStack
from keras_transformer.feedforward import DenseFeedForward, MixtureOfExperts
from laws import randomize

WIDTH = 8


def block(dropout=0.0, position="rotary", **options):
    attention = MultiHeadAttention(2, 4, dropout=dropout, position=position)
    return DecoderBlock(attention, DenseFeedForward(12), dropout=dropout, **options)


def stack_of(memory=2, segment=4, count=2, **options):
    stack = MemoryStack([block() for _ in range(count)], memory, segment, **options)
    stack.build((None, None, WIDTH))
    return randomize(stack)


def tokens(length, batch=2):
    return np.random.default_rng(length).normal(size=(batch, length, WIDTH)).astype("float32")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "memory, segment, pieces",
    [
        (1, 5, [[1], [7, 7, 7, 7, 2], [1] * 12]),
        (3, 16, [[1] * 17, [64, 64, 22]]),
        (4, 64, [[1, 299]]),
    ],
)
def test_however_it_is_cut(memory, segment, pieces):
    stack = stack_of(memory, segment, count=1, norm=keras.layers.RMSNormalization())
    for sizes in pieces:
        length = sum(sizes)
        x = tokens(length)
        cache, outputs, index = stack.init_cache(2), [], 0
        for size in sizes:
            output, cache = stack(x[:, index : index + size], cache=cache, cache_index=np.int32(index))
            outputs.append(np.asarray(output))
            index += size
        np.testing.assert_allclose(np.concatenate(outputs, axis=1), stack(x), atol=1e-5)


def test_rows_at_places_of_their_own():
    """Prompts that end within a segment, with it, and in the next one; then so many new tokens of each row in one call."""
    stack, lengths, new_lengths = stack_of(2, 6), np.array([4, 6, 9], "int32"), np.array([13, 1, 20], "int32")
    x = tokens(40, batch=3)
    whole = np.asarray(stack(x))
    mask = np.arange(10) < lengths[:, None]
    prompt = np.where(mask[:, :, None], x[:, :10], 99.0)
    first, cache = stack(prompt, padding_mask=mask, cache=stack.init_cache(3), cache_index=0)
    np.testing.assert_allclose(np.asarray(first)[mask], whole[:, :10][mask], atol=1e-5)
    mask = np.arange(20) < new_lengths[:, None]
    new = np.stack([x[row, n : n + 20] for row, n in enumerate(lengths)])
    expected = np.stack([whole[row, n : n + 20] for row, n in enumerate(lengths)])
    output, cache = stack(np.where(mask[:, :, None], new, 99.0), padding_mask=mask, cache=cache, cache_index=lengths)
    np.testing.assert_allclose(np.asarray(output)[mask], expected[mask], atol=1e-5)
    for step in range(4):
        index = lengths + new_lengths + step
        output, cache = stack(x[np.arange(3), index][:, None], cache=cache, cache_index=index)
        np.testing.assert_allclose(output[:, 0], whole[np.arange(3), index], atol=1e-5)


def test_padding_changes_nothing():
    stack, x = stack_of(), tokens(7)
    mask = np.arange(12) < 7
    padded = np.concatenate([x, np.full((2, 5, WIDTH), 9.0, "float32")], axis=1)
    output = stack(padded, padding_mask=np.stack([mask, mask]))
    np.testing.assert_allclose(output[:, :7], stack(x), atol=1e-6)


class Unrolled(keras.layers.Layer):
    """The stack's segments one after the other, without a loop: what the loop must equal."""

    def __init__(self, stack):
        super().__init__()
        self.stack = stack

    def call(self, x):
        memory, outputs = self.stack.first_memory(keras.ops.shape(x)[0]), []
        for start in range(0, x.shape[1], self.stack.segment_length):
            part = x[:, start : start + self.stack.segment_length]
            output, memory = self.stack._segment(memory, part, None, training=True)
            outputs.append(output)
        return keras.ops.concatenate(outputs, axis=1)


class Below(keras.layers.Layer):
    """A layer below: it adds a vector of its own to each place."""

    def build(self, shape):
        self.shift = self.add_weight(shape=shape[1:], initializer="zeros")

    def call(self, x):
        return x + self.shift


def step(layer, x, last=0, jit_compile=False):
    """One step of descent on the last tokens, of all where `last` is 0; returns what the layer below learned."""
    below, symbolic = Below(), keras.Input(x.shape[1:])
    model = keras.Model(symbolic, layer(below(symbolic))[:, -last:])
    model.compile(keras.optimizers.SGD(0.5), "mse", jit_compile=jit_compile)
    model.train_on_batch(x, np.zeros(model.output.shape[1:], "float32")[None].repeat(len(x), 0))
    return np.asarray(below.shift)


@pytest.mark.exhaustive
@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients_go_through_the_loop(jit_compile):
    x, start = tokens(16), stack_of().get_weights()
    looped, unrolled = stack_of(), stack_of()
    shift = step(looped, x, jit_compile=jit_compile)
    np.testing.assert_allclose(shift, step(Unrolled(unrolled), x), atol=1e-5)
    for weight, new, expected, old in zip(
        looped.weights, looped.get_weights(), unrolled.get_weights(), start, strict=True
    ):
        np.testing.assert_allclose(new, expected, atol=2e-5, err_msg=weight.path)
        assert np.abs(expected - old).max() > 1e-5 or "key/bias" in weight.path


@pytest.mark.exhaustive
@pytest.mark.parametrize("gradient_segments, first", [(1, 3), (2, 2), (3, 1)])
def test_how_far_back_gradients_flow(gradient_segments, first):
    """A loss on the fourth segment teaches what stands in the segments from `first` on."""
    shift = step(stack_of(gradient_segments=gradient_segments), tokens(16), last=4)
    learned = np.abs(shift).reshape(4, -1).max(axis=1)
    np.testing.assert_array_equal(learned[:first], 0)
    assert np.all(learned[first:] > 1e-7)


def test_the_first_memory_learns_however_short_gradients_are():
    stack = stack_of(gradient_segments=1)
    before = np.asarray(stack.memory)
    step(stack, tokens(16))
    assert np.abs(np.asarray(stack.memory) - before).max() > 1e-4


def test_dropout_draws_anew_in_each_segment_and_step():
    stack = MemoryStack([], 1, 50, learned_positions=False, dropout=0.4, seed=3)
    x = np.ones((1, 200, WIDTH), "float32")
    np.testing.assert_array_equal(stack(x), x)
    dropped = np.asarray(stack(x, training=True)) == 0
    again = np.asarray(stack(x, training=True)) == 0
    assert abs(dropped.mean() - 0.4) < 0.05
    segments = np.stack([dropped.reshape(4, -1), again.reshape(4, -1)]).reshape(8, -1)
    agreement = np.array([[np.mean(a == b) for a in segments] for b in segments])
    assert np.all(agreement[~np.eye(8, dtype=bool)] < 0.65)  # Of two independent draws: 0.52.


@pytest.mark.exhaustive
@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_with_dropout(jit_compile):
    """Generators inside the loop keep their states, whatever compiles the step."""
    stack = MemoryStack([block(dropout=0.2)], 2, 4, dropout=0.2)
    symbolic = keras.Input((None, WIDTH))
    model = keras.Model(symbolic, stack(symbolic))
    model.compile(keras.optimizers.Adam(0.01), "mse", jit_compile=jit_compile)
    x = tokens(12)
    losses = model.fit(x, 0 * x, epochs=30, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]


def test_refused():
    for wrong in ({"memory": 0}, {"segment": 0}, {"gradient_segments": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            stack_of(**wrong)
    local = DecoderBlock(MultiHeadAttention(2, 4, mechanism=LocalAttention(3)), DenseFeedForward(12))
    with pytest.raises(ValueError, match="keep all keys"):
        MemoryStack([local], 2, 4)
    with pytest.raises(ValueError, match="updates statistics of the batch"):
        MemoryStack([block(norm="batch_norm")], 2, 4)
    with pytest.raises(ValueError, match="updates statistics of the batch"):
        MemoryStack([DecoderBlock(MultiHeadAttention(2, 4), MixtureOfExperts(12))], 2, 4)
