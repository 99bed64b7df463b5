"""Dense and sliding-window key/value caches: dicts of named tensors of fixed shape. Functions return the next cache.

Heads come before slots, `(B, K, L, H)`, so that the operands of attention are contiguous in memory.
"""

from __future__ import annotations

import functools

import keras
from keras import ops

from keras_transformer.attention.cache.quantized import SCALE, dequantize_rows, quantize_rows
from keras_transformer.attention.partition.bands import take_rows
from keras_transformer.backend.compilation.xla import update_once
from keras_transformer.utils.types import Cache, Tensor


def init_dense_cache(
    batch_size: int, max_length: int, num_heads: int, key_dim: int, value_dim: int, dtype: str | None
) -> Cache:
    """Returns an empty cache of `max_length` slots.

    Args:
        batch_size: int. B.
        max_length: int. The number of slots L.
        num_heads: int. The number of key/value heads K.
        key_dim: int. Width of a key head.
        value_dim: int. Width of a value head.
        dtype: str. The dtype of the tensors. "int8" for keys and values that are rounded, each to its own scale.

    Returns:
        dict with "key" `(B, K, L, key_dim)` and "value" `(B, K, L, value_dim)`, all zeros; in int8 also with "key_scale" and
        "value_scale", float32 `(B, K, L, 1)`.
    """
    shape = (batch_size, num_heads, max_length)
    cache = {
        "key": ops.zeros((*shape, key_dim), dtype=dtype),
        "value": ops.zeros((*shape, value_dim), dtype=dtype),
    }
    scales = [f"{name}{SCALE}" for name in cache] if dtype == "int8" else []
    return cache | {name: ops.zeros((*shape, 1), dtype="float32") for name in scales}


def update_dense_cache(cache: Cache, key: Tensor, value: Tensor, cache_index: Tensor | None) -> Cache:
    """Returns the cache with new keys and values written from slot `cache_index` on.

    Args:
        cache: dict as `init_dense_cache` returns.
        key: `(B, T, K, key_dim)`: the keys of T new tokens.
        value: `(B, T, K, value_dim)`.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row.

    Returns:
        The next cache.

    Raises:
        ValueError: more tokens than slots, or a Python int as index that leaves too few slots.
    """
    new = {"key": key, "value": value}
    if f"key{SCALE}" in cache:
        rounded = {name: quantize_rows(tensor) for name, tensor in new.items()}
        new = {name: levels for name, (levels, _) in rounded.items()}
        new |= {f"{name}{SCALE}": scale for name, (_, scale) in rounded.items()}
    return write_rows(cache, new, cache_index)


def write_rows(cache: Cache, new: Cache, cache_index: Tensor | None) -> Cache:
    """Returns tensors `(B, K, L, W)` of a cache, of any names, with new tokens written from slot `cache_index` on.

    Args:
        cache: dict of name to tensor `(B, K, L, W)`.
        new: dict of name to the rows of T new tokens, `(B, T, K, W)`.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row.

    Returns:
        dict of the names in `new`.

    Raises:
        ValueError: as `update_dense_cache`.
    """
    first = next(iter(new.values()))
    _check_capacity(cache_length(cache), first.shape[1], cache_index)
    slots = token_slots(cache_index, ops.shape(first)[1])
    # The batch size comes from the index if possible, so that all layers of a model share the indices.
    batch_size = ops.shape(slots if len(getattr(cache_index, "shape", ())) == 1 else first)[0]
    indices = _slot_indices(slots, batch_size, first.shape[2])
    return {
        name: update_once(functools.partial(_write, indices=indices, update=rows), cache[name], cache_index)
        for name, rows in new.items()
    }


def fill_dense_cache(key: Tensor, value: Tensor) -> Cache:
    """Returns a cache of exactly these keys `(B, S, K, key_dim)` and values `(B, S, K, value_dim)`."""
    return {"key": _swap(key), "value": _swap(value)}


def read_dense_cache(cache: Cache, dtype: str | None = None) -> tuple[Tensor, Tensor]:
    """Returns keys `(B, L, K, key_dim)` and values `(B, L, K, value_dim)`, as mechanisms take them, cast to `dtype`."""
    if f"key{SCALE}" in cache:
        tensors = [dequantize_rows(cache[name], cache[f"{name}{SCALE}"]) for name in ("key", "value")]
    else:
        tensors = [cache["key"], cache["value"]]
    return tuple(_swap(ops.cast(tensor, dtype or tensor.dtype)) for tensor in tensors)


def extend_dense_cache(
    cache: Cache, key: Tensor, value: Tensor, cache_index: Tensor | None, key_mask: Tensor | None, dtype: str
) -> tuple[Tensor, Tensor, Tensor, Cache]:
    """Writes new tokens, and reads all slots.

    Args:
        cache: a dense cache.
        key: keys of the new tokens `(B, T, K, key_dim)`.
        value: their values `(B, T, K, value_dim)`.
        cache_index: int32 `(B,)` or scalar, the slot of the first new token; None for 0.
        key_mask: boolean `(B, L)`, or None.
        dtype: of the keys and values that are returned.

    Returns:
        `(keys, values, slots, cache)`: `(B, L, K, key_dim)`, `(B, L, K, value_dim)`, int32 `(L,)` and the next cache.

    Raises:
        ValueError: the mask does not cover the slots.
    """
    check_key_mask(cache, key_mask)
    cache = update_dense_cache(cache, key, value, cache_index)
    key, value = read_dense_cache(cache, dtype)
    return key, value, ops.arange(ops.shape(key)[1], dtype="int32"), cache


def cache_length(cache: Cache) -> int | None:
    """Returns the number of slots L, or None if it is dynamic."""
    return next(iter(cache.values())).shape[2]


def check_key_mask(cache: Cache, mask: Tensor | None) -> None:
    """Raises `ValueError` for a key mask `(B, S)` that does not cover the slots of a dense cache."""
    if mask is not None and mask.shape[1] != cache_length(cache):
        raise ValueError(
            f"With a cache of {cache_length(cache)} slots, a key or value mask must cover the slots. Received a mask of "
            f"shape {tuple(mask.shape)}. Pad rows on the right and count `cache_index` per row instead."
        )


def init_window_cache(
    batch_size: int, window: int, num_heads: int, key_dim: int, value_dim: int, dtype: str | None
) -> Cache:
    """Returns an empty cache for the last `window` tokens, in order.

    Returns:
        dict with "recent_keys" `(B, window, K, key_dim)` and "recent_values" `(B, window, K, value_dim)`.
    """
    widths = {"recent_keys": key_dim, "recent_values": value_dim}
    return {name: ops.zeros((batch_size, window, num_heads, width), dtype=dtype) for name, width in widths.items()}


def extend_window_cache(
    cache: Cache, key: Tensor, value: Tensor, cache_index: Tensor | None, token_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Cache]:
    """Appends new tokens to a window cache, and drops the oldest.

    Args:
        cache: dict as `init_window_cache` returns, of W tokens.
        key: `(B, T, K, key_dim)`: the keys of T new tokens.
        value: `(B, T, K, value_dim)`.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row.
        token_mask: boolean `(B, T)`: False for padding, which must be on the right and is not kept. None for no padding.

    Returns:
        Keys `(B, W + T, K, key_dim)` and values, in the dtypes of the new ones; their slots `(1 | B, W + T)`, negative
        before the first token; and the next cache.
    """
    window, length = cache["recent_keys"].shape[1], ops.shape(key)[1]
    joined = {name: _append(cache[name], new) for name, new in (("recent_keys", key), ("recent_values", value))}
    if token_mask is None:
        following = {name: tensor[:, length : length + window] for name, tensor in joined.items()}
    else:
        starts = ops.sum(ops.cast(token_mask, "int32"), axis=1)
        following = {name: take_rows(tensor, starts, window) for name, tensor in joined.items()}
    slots = token_slots(cache_index, window + length) - window
    return ops.cast(joined["recent_keys"], key.dtype), ops.cast(joined["recent_values"], value.dtype), slots, following


def _append(tensor, new):
    return ops.concatenate([tensor, ops.cast(new, tensor.dtype)], axis=1)


def cache_spec(cache: Cache) -> Cache:
    """Returns the spec of the next cache: the same names, shapes and dtypes."""
    return {name: keras.KerasTensor(tensor.shape, dtype=tensor.dtype) for name, tensor in cache.items()}


def token_slots(cache_index: int | Tensor | None, length: int | Tensor) -> Tensor:
    """Returns the slots `(1 | B, T)` of `length` tokens that start at `cache_index`."""
    cache_index = ops.cast(ops.convert_to_tensor(cache_index), "int32")
    return ops.reshape(cache_index, (-1, 1)) + ops.expand_dims(ops.arange(length, dtype="int32"), 0)


def _swap(x):
    return ops.transpose(x, (0, 2, 1, 3))


def _slot_indices(slots, batch_size, num_heads):
    """Returns indices `(B · T · K, 3)` of each head of each new token: row, head and slot."""
    rows = ops.reshape(ops.arange(batch_size, dtype="int32"), (-1, 1, 1))
    heads = ops.reshape(ops.arange(num_heads, dtype="int32"), (1, 1, -1))
    slots = ops.expand_dims(slots, 2)
    # Operators, not keras.ops.add: on TensorFlow it treats (1, n) + (n, 1) as a bias, and returns (1, n).
    grid = [rows + slots * 0 + heads * 0, heads + rows * 0 + slots * 0, slots + rows * 0 + heads * 0]
    return ops.stack([ops.reshape(axis, (-1,)) for axis in grid], axis=1)


def _write(tensor, indices, update):
    # A scatter, not a slice update: it is built into TFLite and ONNX (ScatterND), and each row has its own index.
    update = ops.reshape(ops.cast(update, tensor.dtype), (-1, tensor.shape[3]))
    return ops.scatter_update(tensor, indices, update)


def _check_capacity(max_length, length, cache_index):
    if max_length is None or length is None:
        return
    start = cache_index if isinstance(cache_index, int) else 0
    if start < 0 or start + length > max_length:
        raise ValueError(
            f"The cache has {max_length} slots; {length} tokens do not fit at cache_index={start}. "
            "Create it with a larger max_length."
        )
