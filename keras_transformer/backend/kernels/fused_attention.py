"""Fused attention kernels: cuDNN's on JAX with CUDA, and those that Keras chooses on TPUs and in PyTorch.

Packed rows on GPUs have a kernel of JAX that compares the segments of tokens, without a mask.
"""

from __future__ import annotations

import math

import keras
from keras import ops

from keras_transformer.utils.types import Tensor

# The compute capabilities that kernels need, and the widths of a head that cuDNN's supports: up to 256 from Hopper on.
_LEAST_CAPABILITY, _HOPPER = (8, 0), (9, 0)
_WIDEST_HEAD, _WIDEST_HEAD_OF_HOPPER = 128, 256
# The kernel with segments takes rows of whole blocks, and products of at least 16 channels.
_BLOCK, _NARROWEST, _WIDEST = 128, 16, 128
# How many times longer than its vectors are wide a row is, for the kernel to be chosen: a mask would then be as large as
# queries, keys, values and context together. For shorter rows, cuDNN's kernel with a small mask is kept.
_LEAST_RATIO = 4


def has_fused_attention(query: Tensor, has_window: bool = False) -> bool:
    """Returns whether a kernel computes attention, plain or causal, without a tensor of all scores.

    On JAX with CUDA that is cuDNN's, for float16 and bfloat16; on TPUs and in PyTorch Keras chooses one. TensorFlow has
    none, nor has JAX on a CPU.

    Args:
        query: float `(B, T, N, H)`; keys and values have the same dtype and width.
        has_window: bool. Whether attention has a causal window, for which cuDNN alone needs no mask.
    """
    if keras.backend.backend() != "jax":
        return keras.backend.backend() == "torch" and not has_window
    return _has_cudnn_attention(query) or (_is_tpu() and not has_window)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    scale: float | None = None,
    is_causal: bool = False,
    window: int | None = None,
    flash_attention: bool | None = None,
) -> Tensor:
    """Scaled dot-product attention, `keras.ops.dot_product_attention` with a window and cheaper masks.

    On JAX, causality and the window are flags of the kernel, also beside a mask, and heads of queries share those of keys
    without copies. Otherwise they become part of the mask where Keras has no flag for them.

    Args:
        query: float `(B, T, N, H)`.
        key, value: float `(B, S, K, H)`; N is a multiple of K.
        bias: float `(1 | B, 1 | N, 1 | T, S)`, added to the scores; or None.
        mask: bool `(1 | B, 1 | N, 1 | T, 1 | S)`, True = may attend; or None.
        scale: float, or None for `1 / √H`. Factor of the scores.
        is_causal: bool. Whether query i attends to keys up to i only.
        window: int >= 1, or None. Query i attends to keys `i - window + 1` to i only; requires `is_causal`.
        flash_attention: bool or None, as in Keras. True raises Keras's error where no kernel applies.

    Returns:
        The context `(B, T, N, H)`.

    Example:

    >>> import numpy as np
    >>> x, values = np.ones((1, 4, 1, 2), "float32"), np.array([[1.0, 0], [2, 0], [3, 0], [4, 0]], "float32")
    >>> context = fused_attention(x, x, values.reshape(1, 4, 1, 2), is_causal=True, window=2)
    >>> np.array(context)[0, :, 0, 0].tolist()
    [1.0, 1.5, 2.5, 3.5]
    """
    dtype = keras.backend.result_type(query.dtype, key.dtype, value.dtype)
    query, key, value = (ops.cast(x, dtype) for x in (query, key, value))
    lengths = ops.shape(query)[1], ops.shape(key)[1]
    # Kernels broadcast over rows and heads only.
    bias, mask = (x if x is None else ops.broadcast_to(x, (*ops.shape(x)[:2], *lengths)) for x in (bias, mask))
    options: dict[str, object] = {"bias": bias, "mask": mask, "scale": scale, "is_causal": is_causal}
    if keras.backend.backend() == "jax":
        if _has_cudnn_attention(query):
            return _by_cudnn(query, key, value, window, **options)
        if not flash_attention and not _is_tpu():
            return _by_jax(query, key, value, window, "xla", **options)
    if window is not None or (is_causal and mask is not None):
        options |= {"mask": _with_causal_mask(mask, *lengths, window), "is_causal": False}
    if key.shape[2] == 1 and query.shape[2] > 1:
        # Keras raises an error for a single key head, against its documentation.
        key, value = (ops.repeat(x, query.shape[2], axis=2) for x in (key, value))
    return ops.dot_product_attention(query, key, value, flash_attention=flash_attention, **options)


def _by_jax(query, key, value, window, implementation, **options):
    import jax

    window = None if window is None else (window - 1, 0)
    return jax.nn.dot_product_attention(
        query, key, value, local_window_size=window, implementation=implementation, **options
    )


def _by_cudnn(query, key, value, window, bias, mask, scale, is_causal):
    """The kernel of cuDNN, with another token where a length is odd: its gradient takes even lengths only."""
    (batch_size, length), key_length = query.shape[:2], key.shape[1]
    more, more_keys = length % 2, key_length % 2
    query, key, value = _padded(query, 1, more), _padded(key, 1, more_keys), _padded(value, 1, more_keys)
    mask, bias = (_padded(_padded(x, 2, more), 3, more_keys) for x in (mask, bias))
    options = {"bias": None if bias is None else ops.cast(bias, query.dtype), "mask": mask, "scale": scale}
    if more_keys and not is_causal:  # With causality no real query attends to what follows it.
        options["key_value_seq_lengths"] = ops.full((batch_size,), key_length, "int32")
    return _by_jax(query, key, value, window, "cudnn", is_causal=is_causal, **options)[:, :length]


def _padded(x: Tensor, axis: int, count: int) -> Tensor:
    """`x` or None, with `count` zeros at the end of an axis of four."""
    if x is None or count == 0:
        return x
    return ops.pad(x, [(0, count if each == axis else 0) for each in range(4)])


def _with_causal_mask(mask, length, key_length, window):
    """The mask `(1 | B, 1 | N, T, S)` with causality and the window in it."""
    distance = ops.expand_dims(ops.arange(length), 1) - ops.expand_dims(ops.arange(key_length), 0)
    causal = distance >= 0 if window is None else ops.logical_and(distance >= 0, distance < window)
    causal = ops.expand_dims(ops.expand_dims(causal, 0), 0)
    return causal if mask is None else ops.logical_and(mask, causal)


def _has_cudnn_attention(query):
    """Whether cuDNN's kernel supports queries of this dtype and width on this device."""
    capability = cuda_capability()
    if capability is None or capability < _LEAST_CAPABILITY:
        return False
    width, widest = query.shape[-1], _WIDEST_HEAD if capability < _HOPPER else _WIDEST_HEAD_OF_HOPPER
    is_half = keras.backend.standardize_dtype(query.dtype) in ("float16", "bfloat16")
    return is_half and width <= widest and width % 8 == 0


def cuda_capability() -> tuple[int, int] | None:
    """Returns the compute capability of the CUDA device that JAX uses, such as (9, 0) for Hopper; None without one."""
    import jax

    device = jax.local_devices()[0]
    if "cuda" not in device.client.platform_version:
        return None
    major, minor = device.compute_capability.split(".")
    return int(major), int(minor)


def _is_tpu():
    import jax

    return jax.local_devices()[0].platform == "tpu"


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
    context = _segment_kernel(query, key, value, segments, scale, is_causal)[:, :length]
    is_real = ops.expand_dims(ops.expand_dims(segment_ids > 0, 2), 3)
    return ops.where(is_real, context, ops.zeros_like(context))


def _segment_kernel(query, key, value, segment_ids, scale, is_causal, interpret=False) -> Tensor:
    from jax.experimental.pallas.ops.gpu.attention import mha

    return mha(query, key, value, segment_ids, sm_scale=scale, causal=is_causal, interpret=interpret)
