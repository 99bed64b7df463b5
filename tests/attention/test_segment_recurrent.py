"""Segment recurrence against its formula, the authors' code, and itself: whole, in chunks, token by token."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention, SegmentRecurrentAttention
from laws import check_pieces, randomize

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "transformer_xl_attention.npz")


def layer_of(segment, memory, position="transformer_xl", width=16, **options):
    layer = SegmentRecurrentAttention(2, 8, segment, memory, position=position, **options)
    layer.build((None, None, width))
    return randomize(layer)


def dense_twin(layer):
    """Attention of the same weights with a mask for what segments see."""
    twin = MultiHeadAttention(2, 8, position=layer.position)
    twin.build((None, None, 16), (None, None, 16))
    denses = [layer._query_dense, layer._key_dense, layer._value_dense, layer.output_dense]
    for dense, of_layer in zip(
        (twin.query_dense, twin.key_dense, twin.value_dense, twin.output_dense), denses, strict=True
    ):
        dense.set_weights(of_layer.get_weights())
    return twin


def seen(length, segment, memory, same_length):
    """`(T, T)`: what token i sees, from the formula."""
    i, j = np.arange(length)[:, None], np.arange(length)
    first = i - memory + 1 if same_length else i - i % segment - memory
    return (first <= j) & (j <= i)


def tokens(length, batch=2, width=16):
    return np.random.default_rng(length).normal(size=(batch, length, width)).astype("float32")


@pytest.mark.parametrize("same_length", [False, True])
@pytest.mark.parametrize("segment, memory", [(4, 4), (3, 7), (5, 2), (1, 3)])
def test_any_length_is_the_masked_dense_formula(segment, memory, same_length):
    layer = layer_of(segment, memory, same_length=same_length)
    dense = dense_twin(layer)
    for length in (1, 5, 13, 30):
        x, visible = tokens(length), seen(length, segment, memory, same_length)
        np.testing.assert_allclose(layer(x, x), dense(x, x, attention_mask=visible), atol=1e-5)
        mask = np.random.default_rng(1).uniform(size=(2, length)) > 0.3
        masks = {"query_mask": mask, "value_mask": mask}
        expected = dense(x, x, attention_mask=visible, **masks)
        np.testing.assert_allclose(layer(x, x, value_mask=mask), expected, atol=1e-5)


def test_attention_of_the_reference():
    layer = layer_of(8, 6, use_bias=False)
    for dense, part in zip(
        (layer._query_dense, layer._key_dense, layer._value_dense),
        np.split(GOLDEN["params/qkv_net.weight"], 3),
        strict=True,
    ):
        dense.kernel.assign(part.T.reshape(16, 2, 8))
    layer.output_dense.kernel.assign(GOLDEN["params/o_net.weight"].T.reshape(2, 8, 16))
    layer.position.kernel.assign(GOLDEN["params/r_net.weight"].T.reshape(16, 2, 8))
    layer.position.content_bias.assign(GOLDEN["params/r_w_bias"])
    layer.position.position_bias.assign(GOLDEN["params/r_r_bias"])
    x, memory = (GOLDEN[f"inputs/{name}"].swapaxes(0, 1) for name in ("w", "mems"))
    norm = keras.layers.LayerNormalization(epsilon=1e-5)
    norm.build(x.shape)
    norm.set_weights([GOLDEN["params/layer_norm.weight"], GOLDEN["params/layer_norm.bias"]])
    # A segment of eight, of which the memory is the last six.
    row = np.concatenate([np.full_like(x[:, :2], 9.0), memory, x], axis=1)
    expected = GOLDEN["outputs/y"].swapaxes(0, 1)
    np.testing.assert_allclose(norm(x + layer(row, row)[:, 8:]), expected, atol=1e-5)
    _, cache = layer(memory, memory, cache=layer.init_cache(2, None), cache_index=2)
    output, _ = layer(x, x, cache=cache, cache_index=8)
    np.testing.assert_allclose(norm(x + output), expected, atol=1e-5)
    np.testing.assert_allclose(norm(x + layer(x, x)), GOLDEN["outputs/y_no_memory"].swapaxes(0, 1), atol=1e-5)


@pytest.mark.parametrize("segment, memory, same_length", [(16, 24, False), (7, 3, False), (16, 24, True)])
def test_however_it_is_cut(segment, memory, same_length):
    layer = layer_of(segment, memory, same_length=same_length, width=8)
    for length, sizes in ((1, [1]), (17, [1] * 17), (40, [7] * 5 + [5]), (150, [64, 64, 22]), (300, [1, 299])):
        check_pieces(layer, tokens(length, width=8), sizes, max_length=1)


def test_rows_at_places_of_their_own():
    """Twenty tokens of each row are read in one call: with the cache, from the fifth on here, from the ninth there."""
    layer, lengths = layer_of(6, 5), np.array([5, 9], "int32")
    x = tokens(40)
    mask = np.arange(9) < lengths[:, None]
    prompt = np.where(mask[:, :, None], x[:, :9], 99.0)
    _, cache = layer(prompt, prompt, query_mask=mask, cache=layer.init_cache(2, None), cache_index=0)
    new = np.stack([x[row, n : n + 20] for row, n in enumerate(lengths)])
    output, _ = layer(new, new, cache=cache, cache_index=lengths)
    whole = np.asarray(layer(x, x))
    for row, n in enumerate(lengths):
        np.testing.assert_allclose(output[row], whole[row, n : n + 20], atol=1e-5)


@pytest.mark.parametrize("position", ["transformer_xl", "rotary"])
def test_given_positions(position):
    """From another start nothing changes; further apart they do, whole and with the cache alike."""
    layer, x = layer_of(4, 3, position), tokens(14)
    whole = np.asarray(layer(x, x))
    np.testing.assert_allclose(layer(x, x, positions=np.arange(14) + np.array([[5], [90]])), whole, atol=1e-5)
    apart = np.asarray(layer(x, x, positions=2 * np.arange(14)))
    assert np.abs(apart - whole).max() > 1e-2
    cache = layer.init_cache(2, None)
    for first, last in ((0, 3), (3, 14)):
        part, places = x[:, first:last], np.arange(first, last) + 7
        output, cache = layer(part, part, positions=places, cache=cache, cache_index=first)
        np.testing.assert_allclose(output, whole[:, first:last], atol=1e-5)


class Below(keras.layers.Layer):
    """A layer below: it adds a vector of its own to each place."""

    def build(self, shape):
        self.shift = self.add_weight(shape=shape[1:], initializer="zeros")

    def call(self, x):
        return x + self.shift


def step(attend, x):
    """One step of descent on what the last four tokens of eight give; returns what the layer below learned."""
    below, symbolic = Below(), keras.Input(x.shape[1:])
    moved = below(symbolic)
    model = keras.Model(symbolic, attend(moved, moved)[:, 4:])
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=False)
    model.train_on_batch(x, np.zeros_like(x[:, 4:]))
    return np.asarray(below.shift)


@pytest.mark.parametrize("same_length", [False, True])
def test_gradients_end_at_the_memory(same_length):
    """The layer below learns nothing from the segment after its own; the projections learn from memories as ever."""
    layer, x = layer_of(4, 4, position="rotary", same_length=same_length), tokens(8)
    twin, mask = dense_twin(layer), seen(8, 4, 4, same_length)
    learned = step(layer, x)
    np.testing.assert_array_equal(learned[:4], 0)
    assert np.all(np.abs(learned[4:]).max(axis=-1) > 1e-4)
    assert np.abs(step(lambda x, y: twin(x, y, attention_mask=mask), x)[:4]).max() > 1e-4
    for dense, other in ((layer._key_dense, twin.key_dense), (layer._value_dense, twin.value_dense)):
        np.testing.assert_allclose(dense.kernel, other.kernel, atol=1e-5)


def test_refused():
    with pytest.raises(ValueError, match="segment_length"):
        SegmentRecurrentAttention(2, 8, 0, 4)
    with pytest.raises(ValueError, match="memory_length"):
        SegmentRecurrentAttention(2, 8, 4, 0)
