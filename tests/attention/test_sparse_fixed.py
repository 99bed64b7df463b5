"""The fixed pattern of Sparse Transformers: the reference's masks, and the masked dense formula."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import FixedSparseAttention, MultiHeadAttention, SoftmaxAttention, Visibility
from keras_transformer.positions import ALiBi
from laws import check_pieces

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "sparse_transformer.npz")


def visibility(length, **options):
    slots = np.arange(length, dtype="int32")
    return Visibility.from_slots(slots, slots, **options)


@pytest.mark.parametrize("block_size, groups, size", [(4, 1, 1), (4, 4, 1), (8, 4, 1), (8, 2, 2)])
def test_the_reference_sees_the_same_keys(block_size, groups, size):
    """With values of the identity, the context is the weights: positive just where the reference's mask is."""
    mask = GOLDEN[f"outputs/fixed_n16_h4_ctx{block_size}_verts{groups}_size{size}"]  # (head, query, key)
    query, key = np.random.default_rng(0).normal(size=(2, 1, 16, 4, 8)).astype("float32")
    identity = np.broadcast_to(np.eye(16, dtype="float32")[None, :, None], (1, 16, 4, 16))
    mechanism = FixedSparseAttention(block_size, size, groups)
    weights = np.asarray(mechanism(query, key, identity, visibility=visibility(16, causal=True)))
    np.testing.assert_array_equal(weights[0].transpose(1, 0, 2) > 0, mask)
    masked = visibility(16, attention_mask=mask[None])
    np.testing.assert_allclose(weights, SoftmaxAttention()(query, key, identity, visibility=masked), atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_any_length_is_the_masked_dense_formula(causal):
    for block_size, size in ((1, 1), (4, 2), (40, 3)):
        for length in (1, 4, 7, 33):
            query, key, value = np.random.default_rng(0).normal(size=(3, 2, length, 4, 8)).astype("float32")
            key, value = key[:, :, :2], value[:, :, :2]
            places = np.arange(length)
            pattern = places[:, None] // block_size == places // block_size
            pattern |= places % block_size >= block_size - size
            mask = np.random.default_rng(1).uniform(size=(2, length)) > 0.3
            for masks in ({}, {"key_mask": mask, "query_mask": mask}):
                masks = {"causal": causal, **masks}
                output = FixedSparseAttention(block_size, size)(
                    query, key, value, visibility=visibility(length, **masks), position=ALiBi()
                )
                masked = visibility(length, attention_mask=pattern, **masks)
                expected = SoftmaxAttention()(query, key, value, visibility=masked, position=ALiBi())
                np.testing.assert_allclose(output, expected, atol=1e-6)


@pytest.mark.parametrize("chunks", [[1] * 11, [2, 8, 1]])
def test_cache(chunks):
    layer = MultiHeadAttention(4, 4, mechanism=FixedSparseAttention(3, 1, 2), num_key_value_heads=2)
    x = np.random.default_rng(0).normal(size=(2, 11, 8)).astype("float32")
    check_pieces(layer, x, chunks, max_length=13)


def test_summaries_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="fit a block"):
        FixedSparseAttention(block_size=4, summary_size=2, summary_groups=3)
