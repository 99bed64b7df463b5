"""Cache of the first tokens of each row, with local and with global projections, as of Longformer."""

from __future__ import annotations

from collections.abc import Mapping

from keras import ops

from keras_transformer.utils.types import Cache, Tensor


def init_first_cache(
    batch_size: int, count: int, num_heads: int, key_dim: int, value_dim: int, dtype: str | None
) -> Cache:
    """Returns an empty cache for the first `count` tokens.

    Returns:
        dict with "first_keys" and "global_keys" `(B, N, count, key_dim)`, "first_values" and "global_values"
        `(B, N, count, value_dim)`.
    """
    widths = {"keys": key_dim, "values": value_dim}
    return {
        f"{kind}_{name}": ops.zeros((batch_size, num_heads, count, width), dtype=dtype)
        for kind in ("first", "global")
        for name, width in widths.items()
    }


def write_first(cache: Cache, new: Mapping[str, Tensor], slots: Tensor, token_mask: Tensor | None = None) -> Cache:
    """Writes the new tokens that are among the first G tokens.

    Args:
        cache: dict of tensors `(B, N, G, H)`.
        new: dict of some of their names to tensors `(B, T, N, H)`.
        slots: int `(1 | B, T)`: the slots of the new tokens.
        token_mask: boolean `(B, T)`: False for padding, which is not written; or None.

    Returns:
        dict of the tensors named in `new`.
    """
    first = ops.reshape(ops.arange(cache[next(iter(new))].shape[2], dtype="int32"), (1, 1, -1, 1))
    here = ops.equal(first, ops.expand_dims(ops.expand_dims(slots, 1), 1))  # (1 | B, 1, G, T)
    if token_mask is not None:
        here = ops.logical_and(here, ops.expand_dims(ops.expand_dims(ops.cast(token_mask, "bool"), 1), 1))
    following = {}
    for name, tokens in new.items():
        slab = cache[name]
        selection = ops.cast(here, slab.dtype)
        kept = 1 - ops.sum(selection, axis=-1, keepdims=True)
        written = ops.matmul(selection, ops.transpose(ops.cast(tokens, slab.dtype), (0, 2, 1, 3)))
        following[name] = slab * kept + written
    return following
