"""The strided pattern of Sparse Transformers: the reference's masks and outputs, and the masked dense formula."""

from pathlib import Path

import numpy as np
import pytest

from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention, StridedSparseAttention, Visibility
from keras_transformer.positions import ALiBi
from laws import check_pieces

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "sparse_transformer.npz")


def causal(length, **options):
    slots = np.arange(length, dtype="int32")
    return Visibility.from_slots(slots, slots, **{"causal": True, **options})


def golden_heads():
    return [GOLDEN[f"inputs/{name}"].reshape(2, 16, 2, 8) for name in "qkv"]


@pytest.mark.parametrize("stride", [2, 3, 4, 8])
def test_reference(stride):
    """Separate heads: the first is the reference's "local", the second its "strided"; else their union."""
    query, key, value = golden_heads()
    output = np.asarray(StridedSparseAttention(stride, separate_heads=True)(query, key, value, visibility=causal(16)))
    for head, mode in enumerate(("local", "strided")):
        expected = GOLDEN[f"outputs/y_{mode}_{stride}"].reshape(2, 16, 2, 8)[:, :, head]
        np.testing.assert_allclose(output[:, :, head], expected, atol=1e-6)
    union = GOLDEN[f"outputs/mask_local_{stride}"] | GOLDEN[f"outputs/mask_strided_{stride}"]
    output = StridedSparseAttention(stride)(query, key, value, visibility=causal(16))
    expected = SoftmaxAttention()(query, key, value, visibility=causal(16, causal=False, attention_mask=union))
    np.testing.assert_allclose(output, expected, atol=1e-6)


@pytest.mark.parametrize("is_causal", [False, True])
def test_any_length_is_the_masked_dense_formula(is_causal):
    for stride in (1, 4, 40):
        for length in (1, 4, 7, 33):
            query, key, value = np.random.default_rng(0).normal(size=(3, 2, length, 4, 8)).astype("float32")
            key, value = key[:, :, :2], value[:, :, :2]
            apart = np.abs(np.arange(length)[:, None] - np.arange(length))
            pattern = (apart < stride) | (apart % stride == 0)
            mask = np.random.default_rng(1).uniform(size=(2, length)) > 0.3
            for masks in ({}, {"key_mask": mask, "query_mask": mask}):
                masks = {"causal": is_causal, **masks}
                output = StridedSparseAttention(stride)(
                    query, key, value, visibility=causal(length, **masks), position=ALiBi()
                )
                masked = causal(length, attention_mask=pattern, **masks)
                expected = SoftmaxAttention()(query, key, value, visibility=masked, position=ALiBi())
                np.testing.assert_allclose(output, expected, atol=1e-6)


@pytest.mark.parametrize("separate_heads", [False, True])
@pytest.mark.parametrize("chunks", [[1] * 11, [2, 8, 1]])
def test_cache(separate_heads, chunks):
    """Few tokens are masked, more than `stride` are set at their slots: both are the whole."""
    layer = MultiHeadAttention(4, 4, mechanism=StridedSparseAttention(3, separate_heads), num_key_value_heads=2)
    x = np.random.default_rng(0).normal(size=(2, 11, 8)).astype("float32")
    check_pieces(layer, x, chunks, max_length=13)


def test_heads_that_do_not_halve_are_refused():
    x = np.ones((1, 5, 3, 4))
    with pytest.raises(ValueError, match="even numbers"):
        StridedSparseAttention(2, separate_heads=True)(x, x, x)
