"""Block-sparse attention against softmax attention with the mask of its layout."""

import keras
import numpy as np
import pytest

from keras_transformer.attention import BlockSparseAttention, MultiHeadAttention, SoftmaxAttention, Visibility
from keras_transformer.positions import ALiBi
from laws import check_pieces


def layouts(heads=None, count=9, seed=0):
    shape = (count, count) if heads is None else (heads, count, count)
    layout = np.random.default_rng(seed).uniform(size=shape) < 0.3
    layout[..., 2, :] = True  # A row that sees everything,
    layout[..., 4, :] = False  # and one that sees nothing.
    return layout


def visibility(length, **options):
    slots = np.arange(length, dtype="int32")
    return Visibility.from_slots(slots, slots, **options)


def dense(layout, block_size, length):
    return np.repeat(np.repeat(layout, block_size, -2), block_size, -1)[..., :length, :length]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [None, 4])
def test_any_length_is_the_masked_dense_formula(causal, heads):
    layout = layouts(heads)
    if heads:
        layout[3] = layout[1]  # Two heads of one layout.
    for length in (1, 4, 7, 15, 36):
        query, key, value = np.random.default_rng(0).normal(size=(3, 2, length, 4, 8)).astype("float32")
        key, value = key[:, :, :2], value[:, :, :2]
        mask = np.random.default_rng(1).uniform(size=(2, length)) > 0.3
        position = None if heads else ALiBi()
        for masks in ({}, {"key_mask": mask, "query_mask": mask}):
            masks = {"causal": causal, **masks}
            output = BlockSparseAttention(layout, 4)(
                query, key, value, visibility=visibility(length, **masks), position=position
            )
            pattern = dense(layout, 4, length)
            masked = visibility(length, attention_mask=pattern[None] if heads else pattern, **masks)
            expected = SoftmaxAttention()(query, key, value, visibility=masked, position=position)
            np.testing.assert_allclose(output, expected, atol=1e-6)


@keras.saving.register_keras_serializable("tests")
def neighbors(count):
    return np.abs(np.subtract.outer(np.arange(count), np.arange(count))) <= 1


def test_a_layout_may_be_a_function():
    x = np.random.default_rng(0).normal(size=(2, 11, 4, 8)).astype("float32")
    layer = BlockSparseAttention.from_config(BlockSparseAttention(neighbors, 3).get_config())
    np.testing.assert_allclose(layer(x, x, x), BlockSparseAttention(neighbors(4), 3)(x, x, x), atol=1e-6)


@pytest.mark.parametrize("chunks", [[1] * 11, [2, 8, 1]])
@pytest.mark.parametrize("heads", [None, 4])
def test_cache(chunks, heads):
    layer = MultiHeadAttention(4, 4, mechanism=BlockSparseAttention(layouts(heads), 2), num_key_value_heads=2)
    x = np.random.default_rng(0).normal(size=(2, 11, 8)).astype("float32")
    check_pieces(layer, x, chunks, max_length=13)


def test_a_row_that_sees_all_makes_no_other_row_dense():
    """A row of 64 blocks, 62 of three and one of two: the blocks gathered are counted."""
    from keras_transformer.attention.mechanisms.sparse.block_sparse import _buckets

    layout = neighbors(64)
    layout[0] = True
    assert sum(columns.size for _, columns, _ in _buckets(layout)) == 64 + 62 * 3 + 2


def test_what_does_not_fit_is_refused():
    x = np.ones((1, 9, 2, 4))
    with pytest.raises(ValueError, match="at most 8 tokens"):
        BlockSparseAttention(np.ones((2, 2)), 4)(x, x, x)
    with pytest.raises(ValueError, match=r"Received an array of shape \(2, 3\)"):
        BlockSparseAttention(np.ones((2, 3)))
    with pytest.raises(ValueError, match="3 heads"):
        BlockSparseAttention(np.ones((3, 3, 3)), 4)(x, x, x)
    x = keras.Input((None, 2, 4))
    with pytest.raises(ValueError, match="static length"):
        MultiHeadAttention(2, 4, mechanism=BlockSparseAttention(neighbors, 4)).mechanism.attend(x, x, x, None)
