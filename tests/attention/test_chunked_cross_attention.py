"""Attention to the neighbors of chunks: the reference's numbers, the formula, causality, and reading in steps."""

import json
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import ChunkedCrossAttention, MultiHeadAttention
from keras_transformer.positions import Rotary

GOLDEN = Path(__file__).parents[1] / "data" / "retro_chunked_cross_attention.npz"
SIZE, COUNT, LENGTH = 3, 2, 4


class ReferencePlaces(ChunkedCrossAttention):
    """As retro-pytorch 0.3.9 has it: its table of query positions, shifted, is zero after the first of each chunk."""

    def _query_positions(self):
        return np.array([2 * self.chunk_size - 2] + [0] * (self.chunk_size - 1), "int32")


@pytest.mark.parametrize("output, masked", [("y", False), ("y_masked", True)])
def test_gives_what_the_reference_gives(output, masked):
    golden = np.load(GOLDEN)
    config, weights = (
        json.loads(str(golden["config"])),
        {name[7:]: golden[name] for name in golden if "params/" in name},
    )
    batch, chunks, count, length, width = golden["inputs/context"].shape
    heads, size = config["heads"], config["dim_head"]
    # Its null key, which all may attend to, is a neighbor more, of one token: along a channel that only this one has.
    context = np.zeros((batch, chunks, count + 1, length, width + 1), "float32")
    context[:, :, :count, :, :width] = golden["inputs/context"]
    context[:, :, count, 0, width] = 1
    mask = np.zeros(context.shape[:-1], bool)
    mask[:, :, :count] = golden["inputs/context_mask"] if masked else True
    mask[:, :, count, 0] = True
    attention = MultiHeadAttention(
        heads, size, use_bias=False, use_output_bias=True, position=Rotary(layout="halves", rotary_dim=8)
    )
    layer = ReferencePlaces(attention, chunk_size=config["chunk_size"])
    context = context.reshape(batch, chunks, -1, width + 1)
    layer.build((None, None, config["dim"]), context.shape, mask.shape)

    def kernel(name, null=None):
        matrix = weights[f"cross_attn.{name}.weight"].T
        matrix = matrix if null is None else np.concatenate([matrix, weights[f"cross_attn.{null}"][None]])
        return matrix.reshape(-1, heads, size)

    out = weights["cross_attn.to_out.weight"].T.reshape(heads, size, -1)
    new = [kernel("to_q"), kernel("to_k", "null_k"), kernel("to_v", "null_v"), out, weights["cross_attn.to_out.bias"]]
    layer.set_weights(new)
    np.testing.assert_allclose(layer(golden["inputs/x"], context, mask), golden[f"outputs/{output}"], atol=1e-6)


def inputs(length=14, chunks=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, length, 8)).astype("float32")
    neighbors = rng.normal(size=(2, chunks, COUNT * LENGTH, 5)).astype("float32")
    mask = rng.random((2, chunks, COUNT, LENGTH)) > 0.3
    mask[0, 1] = False
    return x, neighbors, mask


def made(position=None, **options):
    layer = ChunkedCrossAttention(MultiHeadAttention(2, 4, position=position, **options), chunk_size=SIZE)
    layer.build((None, None, 8), (None, None, COUNT * LENGTH, 5), (None, None, COUNT, LENGTH))
    rng = np.random.default_rng(1)
    layer.set_weights([rng.normal(0.1, 0.4, weight.shape) for weight in layer.get_weights()])
    return layer


def by_formula(layer, x, neighbors, mask):
    """One token at a time, in float64."""
    maps = [getattr(layer.attention, f"{name}_dense") for name in ("query", "key", "value", "output")]
    wq, wk, wv, wo = (np.array(each.kernel, "float64") for each in maps)
    bq, bk, bv, bo = (np.array(each.bias, "float64") for each in maps)
    y = np.zeros(x.shape)
    for row in range(len(x)):
        for t in range(x.shape[1]):
            chunk = (t + 1) // SIZE - 1
            if not 0 <= chunk < neighbors.shape[1] or not mask[row, chunk].any():
                continue
            seen = neighbors[row, chunk][mask[row, chunk].ravel()].astype("float64")
            q = np.einsum("d,dnh->nh", x[row, t], wq) + bq
            k, v = np.einsum("sd,dnh->snh", seen, wk) + bk, np.einsum("sd,dnh->snh", seen, wv) + bv
            scores = np.exp(np.einsum("nh,snh->ns", q, k) / 2)
            y[row, t] = np.einsum("ns,snh,nhd->d", scores / scores.sum(1, keepdims=True), v, wo) + bo
    return y


@pytest.mark.parametrize("length, chunks", [(1, 1), (2, 1), (3, 1), (12, 4), (14, 4), (14, 2), (7, 4)])
def test_is_the_formula(length, chunks):
    layer, arrays = made(), inputs(length, chunks=max(chunks, 2))
    arrays = (arrays[0], arrays[1][:, :chunks], arrays[2][:, :chunks])
    np.testing.assert_allclose(layer(*arrays), by_formula(layer, *arrays), atol=1e-5)


def test_tokens_before_a_chunks_last_do_not_see_its_neighbors():
    layer = made("rotary")
    x, neighbors, mask = inputs()
    before = np.array(layer(x, neighbors, mask))
    changed = neighbors.copy()
    changed[:, 2] += 1.0
    differs = np.abs(np.array(layer(x, changed, mask)) - before).max(axis=(0, 2)) > 0
    # Chunk 2 is tokens 6, 7 and 8: its last, which foretells the first of chunk 3, and the two after it.
    assert np.flatnonzero(differs).tolist() == [8, 9, 10]


def test_tokens_without_neighbors_get_zeros():
    layer = made()
    x, neighbors, mask = inputs()
    output = np.array(layer(x, neighbors, mask))
    assert not output[:, :2].any()
    assert not output[0, 5:8].any()
    assert output[0, 8:].any(axis=-1).all()
    assert output[1, 2:].any(axis=-1).all()


def in_pieces(layer, x, neighbors, mask, sizes, masks=None):
    cache, outputs, index = layer.init_cache(len(x)), [], np.zeros(len(x), "int32")
    rows = np.arange(len(x))[:, None]
    for number, size in enumerate(sizes):
        chunks = (index // SIZE)[:, None] + np.arange(-(-size // SIZE))
        known = np.minimum(chunks, neighbors.shape[1] - 1)
        seen = mask[rows, known] & (chunks < neighbors.shape[1])[..., None, None]
        padding = None if masks is None else masks[number]
        counts = np.full(len(x), size) if padding is None else padding.sum(axis=1)
        part = np.stack([np.pad(row, ((0, size), (0, 0)))[at : at + size] for row, at in zip(x, index, strict=True)])
        output, cache = layer(part, neighbors[rows, known], seen, padding_mask=padding, cache=cache, cache_index=index)
        outputs.append([np.array(row)[:count] for row, count in zip(output, counts, strict=True)])
        index = (index + counts).astype("int32")
    return [np.concatenate(row) for row in zip(*outputs, strict=True)]


@pytest.mark.parametrize(
    "options", [{}, {"position": "transformer_xl"}, {"position": "rotary", "num_key_value_heads": 1}]
)
def test_whole_is_pieces_is_steps(options):
    layer, arrays = made(**options), inputs()
    whole = np.array(layer(*arrays))
    for sizes in ([1] * 14, [5, 9], [2, 1, 7, 4], [14]):
        np.testing.assert_allclose(np.stack(in_pieces(layer, *arrays, sizes)), whole, atol=1e-5)


def test_rows_that_stand_at_different_places():
    layer, arrays = made("rotary"), inputs()
    whole = np.array(layer(*arrays))
    masks = [np.arange(7) < np.array([[7], [4]]), *(np.ones((2, size), bool) for size in (1, 4))]
    found = in_pieces(layer, *arrays, [7, 1, 4], masks)
    for row, output in enumerate(found):
        assert len(output) == (12, 9)[row]
        np.testing.assert_allclose(output, whole[row, : len(output)], atol=1e-5)


def test_refused():
    with pytest.raises(ValueError, match="supports self-attention only"):
        ChunkedCrossAttention(MultiHeadAttention(2, 4, mechanism="local"))
    with pytest.raises(ValueError, match="chunk_size"):
        ChunkedCrossAttention(MultiHeadAttention(2, 4), chunk_size=0)
    with pytest.raises(ValueError, match="build the layer first"):
        ChunkedCrossAttention(MultiHeadAttention(2, 4)).init_cache(1)
