"""Fused attention to packed rows on GPUs: a kernel of JAX that compares the segments of tokens, without a mask."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_transformer.backend.kernels.fused_attention import cuda_capability
from keras_transformer.utils.types import Tensor

# The kernel takes rows of whole blocks, and products of at least 16 channels.
_BLOCK, _NARROWEST, _WIDEST = 128, 16, 128
_LEAST_CAPABILITY = (8, 0)
# How many times longer than its vectors are wide a row is, for the kernel to be chosen: a mask would then be as large as
# queries, keys, values and context together. For shorter rows, cuDNN's kernel with a small mask is kept.
_LEAST_RATIO = 4


def has_segment_attention(query: Tensor, key: Tensor) -> bool:
    """Returns whether a kernel with segments computes attention here: on JAX with CUDA, in half precision, for long rows.

    XLA does not divide the kernel among devices: under a `keras.distribution` it is not chosen.

    Args:
        query: float `(B, T, N, H)`.
        key: float `(B, T, K, H)`.
    """
    if keras.backend.backend() != "jax" or keras.distribution.distribution() is not None:
        return False
    capability = cuda_capability()
    if capability is None or capability < _LEAST_CAPABILITY or query.shape[1] != key.shape[1]:
        return False
    _, length, heads, width = query.shape
    is_half = keras.backend.standardize_dtype(query.dtype) in ("float16", "bfloat16")
    return is_half and _NARROWEST <= width <= _WIDEST and length >= _LEAST_RATIO * heads * width


def segment_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    segment_ids: Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Scaled dot-product attention to the tokens of the same segment, on JAX.

    The kernel is one of `jax.experimental.pallas`. It skips what causality masks, but no segments.

    Args:
        query: float `(B, T, N, H)`.
        key, value: float `(B, T, K, H)`; N is a multiple of K. The kernel has no grouped heads: keys are repeated.
        segment_ids: int32 `(B, T)`, 0 for padding.
        scale: float, or None for `1 / √H`. Factor of the scores.
        is_causal: bool. Whether query i attends to keys up to i only.

    Returns:
        The context `(B, T, N, H)`; zeros for padding.
    """
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    length, groups = query.shape[1], query.shape[2] // key.shape[2]
    if groups > 1:
        key, value = ops.repeat(key, groups, axis=2), ops.repeat(value, groups, axis=2)
    more = -length % _BLOCK
    if more:  # Padding attends to padding.
        query, key, value = (ops.pad(x, [(0, 0), (0, more), (0, 0), (0, 0)]) for x in (query, key, value))
    segments = ops.pad(segment_ids, [(0, 0), (0, more)])
    context = _kernel(query, key, value, segments, scale, is_causal)[:, :length]
    is_real = ops.expand_dims(ops.expand_dims(segment_ids > 0, 2), 3)
    return ops.where(is_real, context, ops.zeros_like(context))


def _kernel(query, key, value, segment_ids, scale, is_causal, interpret=False) -> Any:
    from jax.experimental.pallas.ops.gpu.attention import mha

    return mha(query, key, value, segment_ids, sm_scale=scale, causal=is_causal, interpret=interpret)
