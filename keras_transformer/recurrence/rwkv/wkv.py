"""The WKV operator of RWKV in chunks: a weighted mean over all tokens so far, with weights kept as logarithms.

The past is a mean and the logarithm of its weight, so that no exponential overflows. In the shapes, C is the chunk size, n
the number of chunks, A the number of channels.
"""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_transformer.attention.partition.bands import block_count, pad_length, pad_to_blocks
from keras_transformer.backend.kernels.scan import associative_scan, chunk_size_for
from keras_transformer.utils.types import Tensor

# The logarithm of a zero weight: far below any other, but finite, so that differences are not NaN.
LOG_ZERO = -1e30


def wkv(
    key: Tensor,
    value: Tensor,
    decay: Tensor,
    bonus: Tensor,
    chunk_size: int,
    mask: Tensor | None = None,
    past: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Any]:
    """WKV: `y_t = (Σ_{s < t} e^(k_s - (t - 1 - s) w) v_s + e^(u + k_t) v_t) / (the sum of these weights)`.

    Time and memory grow with `T · C · A`.

    Args:
        key: float32 `(B, T, A)`: the logarithms of weights.
        value: float32 `(B, T, A)`.
        decay: float32 `(A,)`, positive: w.
        bonus: float32 `(A,)`: u.
        chunk_size: int >= 1. C. It changes only the cost.
        mask: float32 `(B, T)`, 0 for padding, which does not change the past; or None.
        past: the logarithm of the weight and the mean of the tokens before, `(B, A)` each. None for no tokens.

    Returns:
        `(B, T, A)`, and the past after the last token, or None if `past` is None.
    """
    length, width = ops.shape(key)[1], key.shape[2]
    size = chunk_size_for(key, chunk_size)
    chunks = block_count(length, size)
    key, steps = _with_padding(key, mask, size, chunks)
    key, value = (ops.reshape(x, (-1, size, width)) for x in (key, pad_to_blocks(value, size)))
    read = ops.cumsum(steps, axis=1)  # (1 | B · n, C): tokens of the chunk read so far, this one included
    before, past = _pasts(key, value, read, decay, chunks, past)
    logits = ops.expand_dims(key, 1) + _decay_terms(read, steps, decay, bonus)  # (B · n, C, C, A): query, key
    carried = None if before is None else before[0] - _outer(read - steps, decay)  # (B · n, C, A)
    highest = ops.max(logits, axis=2)
    highest = ops.stop_gradient(highest if carried is None else ops.maximum(highest, carried))
    weights = ops.exp(logits - ops.expand_dims(highest, 2))
    total = ops.sum(weights, axis=2)
    mean = ops.sum(weights * ops.expand_dims(value, 1), axis=2)
    if before is not None:
        carried = ops.exp(carried - highest)
        total, mean = total + carried, mean + carried * before[1]
    return ops.reshape(mean / total, (-1, chunks * size, width))[:, :length], past


def _with_padding(key, mask, size, chunks):
    """Pads keys to whole chunks with zero weights. Also returns 1 for tokens and 0 for padding, `(1 | B · n, C)`."""
    length = ops.shape(key)[1]
    is_whole = isinstance(length, int) and length % size == 0
    if mask is None and is_whole:
        return key, ops.ones((1, size), dtype="float32")
    mask = ops.ones_like(key[:, :, 0]) if mask is None else mask
    key = ops.where(ops.expand_dims(mask, 2) > 0, key, LOG_ZERO)
    missing = chunks * size - length
    filler = ops.broadcast_to(ops.convert_to_tensor(LOG_ZERO, key.dtype), (ops.shape(key)[0], missing, key.shape[2]))
    return ops.concatenate([key, filler], axis=1), ops.reshape(pad_length(mask, 0, missing), (-1, size))


def _outer(counts, decay):
    """Returns the products of counts `(1 | B · n, C)` and decays, `(1 | B · n, C, A)`."""
    return ops.expand_dims(counts, 2) * decay


def _decay_terms(read, steps, decay, bonus):
    """Returns the term that is added to each key for each query: `(1 | B · n, C, C, A)`."""
    order = ops.arange(ops.shape(read)[1], dtype="int32")
    query, key = ops.reshape(order, (1, -1, 1, 1)), ops.reshape(order, (1, 1, -1, 1))
    between = ops.expand_dims(read - steps, 2) - ops.expand_dims(read, 1)  # (1 | B · n, C, C)
    faded = ops.where(key < query, -ops.expand_dims(between, 3) * decay, LOG_ZERO)
    return ops.where(ops.equal(key, query), bonus, faded)


def _pasts(key, value, read, decay, chunks, past):
    """Returns the past before each chunk, a pair of `(B · n, 1, A)`, and, if `past` is given, after the last.

    The first is None for a single chunk without a past.
    """
    if past is None and isinstance(chunks, int) and chunks == 1:
        return None, None
    width, all_read = key.shape[2], read[:, -1:]
    logs = key - _outer(all_read - read, decay)
    highest = ops.stop_gradient(ops.max(logs, axis=1, keepdims=True))
    weights = ops.exp(logs - highest)
    total = ops.sum(weights, axis=1, keepdims=True)
    means = ops.sum(weights * value, axis=1, keepdims=True) / total
    logs = highest + ops.log(total)
    fading = _outer(all_read, decay) + ops.zeros_like(logs)
    elements = tuple(ops.reshape(x, (-1, chunks, width)) for x in (fading, logs, means))
    first = (ops.full_like(elements[1][:, :1], LOG_ZERO), ops.zeros_like(elements[2][:, :1]))
    if past is not None:
        first = tuple(ops.expand_dims(x, 1) for x in past)
    first = (ops.zeros_like(elements[0][:, :1]), *first)
    elements = tuple(ops.concatenate(pair, axis=1) for pair in zip(first, elements, strict=True))
    if past is None:
        elements = tuple(x[:, :-1] for x in elements)
    _, logs, means = associative_scan(_join, elements, (0.0, LOG_ZERO, 0.0))
    before = tuple(ops.reshape(x if past is None else x[:, :-1], (-1, 1, width)) for x in (logs, means))
    return before, None if past is None else (logs[:, -1], means[:, -1])


def _join(earlier, later):
    """Merges two pasts, each a tuple of decay, logarithm of the weight, and mean."""
    faded = earlier[1] - later[0]
    highest = ops.maximum(faded, later[1])
    first, second = ops.exp(faded - highest), ops.exp(later[1] - highest)
    total = first + second
    return earlier[0] + later[0], highest + ops.log(total), (first * earlier[2] + second * later[2]) / total
