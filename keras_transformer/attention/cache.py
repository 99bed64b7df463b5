"""Creating and updating a key/value cache. A cache is a dict of named tensors of fixed shape; nothing is mutated."""

from keras import ops


def init_dense_cache(batch_size, max_length, num_heads, key_dim, value_dim, dtype):
    """An empty cache of `max_length` slots.

    Args:
        batch_size: int. B.
        max_length: int. The number of slots L.
        num_heads: int. The number of key/value heads K.
        key_dim: int. Width of a key head.
        value_dim: int. Width of a value head.
        dtype: str. The dtype of the tensors.

    Returns:
        dict with "key" `(B, L, K, key_dim)` and "value" `(B, L, K, value_dim)`, all zeros.
    """
    shape = (batch_size, max_length, num_heads)
    return {
        "key": ops.zeros((*shape, key_dim), dtype=dtype),
        "value": ops.zeros((*shape, value_dim), dtype=dtype),
    }


def update_dense_cache(cache, key, value, cache_index):
    """Writes new keys and values at `cache_index` and after it.

    Args:
        cache: dict as `init_dense_cache` returns.
        key: `(B, T, K, key_dim)`: the keys of T new tokens.
        value: `(B, T, K, value_dim)`.
        cache_index: int32 `()` or `(B,)`: the slot of each row's first new token.

    Returns:
        The next cache.

    Raises:
        ValueError: more tokens than slots, or an index, known before running, that leaves too few.
    """
    _check_room(cache["key"].shape[1], key.shape[1], cache_index)
    indices = _row_and_slot(token_slots(cache_index, ops.shape(key)[1]), ops.shape(key)[0])
    return {
        "key": _write(cache["key"], indices, key),
        "value": _write(cache["value"], indices, value),
    }


def token_slots(cache_index, length):
    """The slots `(1 | B, T)` of `length` tokens that start at `cache_index`."""
    cache_index = ops.cast(ops.convert_to_tensor(cache_index), "int32")
    return ops.reshape(cache_index, (-1, 1)) + ops.expand_dims(ops.arange(length, dtype="int32"), 0)


def _row_and_slot(slots, batch_size):
    """The `(B * T, 2)` indices of each new token: its row and its slot."""
    rows = ops.expand_dims(ops.arange(batch_size, dtype="int32"), 1)
    # Operators, not keras.ops.add: on TensorFlow that takes (1, T) + (B, 1) for a bias if B = T, and gives (1, T).
    rows, slots = rows + ops.zeros_like(slots), slots + ops.zeros_like(rows)
    return ops.stack([ops.reshape(rows, (-1,)), ops.reshape(slots, (-1,))], axis=1)


def _write(slab, indices, update):
    # A scatter, not a slice update: built-in in TFLite, ScatterND in ONNX, and each row has its own index.
    update = ops.reshape(ops.cast(update, slab.dtype), (-1, *slab.shape[2:]))
    return ops.scatter_update(slab, indices, update)


def _check_room(max_length, length, cache_index):
    if max_length is None or length is None:
        return
    start = cache_index if isinstance(cache_index, int) else 0
    if start < 0 or start + length > max_length:
        raise ValueError(
            f"The cache has {max_length} slots; {length} tokens do not fit at cache_index={start}. "
            "Create it with a larger max_length."
        )
