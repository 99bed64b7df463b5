"""The chunks of rows in ring attention: which of them meet, their scores, and where devices have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax

MASKED = -1e30


def in_chunks(x: jax.Array, axis: str, size: int, causal: bool) -> jax.Array:
    """A device's part of rows, `(B, L, ...)`, in chunks `(chunks, B, L / chunks, ...)`: zigzag if it is causal.

    In order, a device would have early queries only, which attend to few keys, or late ones only. Of 2n chunks in zigzag
    order, device i has chunks i and 2n - 1 - i, an early and a late one, and all devices have the same work. For an odd
    number of tokens, the last chunk gets one more; mask it.

    Args:
        x: array of this device.
        axis: str. The name of the axis of devices.
        size: int. n, the number of devices.
        causal: bool. False for one chunk, the part itself.
    """
    import jax.numpy as jnp

    if not causal:
        return x[None]
    padding = [(0, 0)] * x.ndim
    padding[1] = (0, x.shape[1] % 2)
    first, second = jnp.split(jnp.pad(x, padding), 2, axis=1)
    # In order, device i has chunks 2i and 2i + 1.
    one, other = (_moved(chunk, axis, _zigzag(size, parity)) for parity, chunk in enumerate((first, second)))
    # Chunk i is one of the first or of the second halves, by its parity; the other has the opposite one.
    is_even = _here(axis) % 2 == 0
    return jnp.stack([jnp.where(is_even, one, other), jnp.where(is_even, other, one)])


def in_order(chunks: jax.Array, axis: str, size: int, length: int) -> jax.Array:
    """The inverse of `in_chunks`: chunks `(chunks, B, L / chunks, ...)` to a part `(B, length, ...)`."""
    import jax.numpy as jnp

    if len(chunks) == 1:
        return chunks[0]
    is_even = _here(axis) % 2 == 0
    halves = jnp.where(is_even, chunks[0], chunks[1]), jnp.where(is_even, chunks[1], chunks[0])
    back = [[(target, source) for source, target in _zigzag(size, parity)] for parity in range(2)]
    parts = [_moved(half, axis, pairs) for half, pairs in zip(halves, back, strict=True)]
    return jnp.concatenate(parts, axis=1)[:, :length]


def meeting_chunks(
    axis: str, size: int, distance: int | jax.Array, causal: bool
) -> list[tuple[int | jax.Array, int | jax.Array, bool]]:
    """The chunks of queries and keys whose scores are needed, for keys of the device `distance` places before this one.

    Returns:
        list of the chunk of queries, the chunk of keys, and whether they are the same tokens, whose scores are causal. All
        tokens of other pairs see one another.
    """
    import jax.numpy as jnp

    if not causal:
        return [(0, 0, False)]
    if isinstance(distance, int):  # 0
        return [(0, 0, True), (1, 0, False), (1, 1, True)]
    # Late queries see the early keys of every device; besides, early queries those of devices before this one, and late
    # queries the late keys of devices after it.
    is_after = (_here(axis) - distance) % size > _here(axis)
    chunk = jnp.where(is_after, 1, 0)
    return [(1, 0, False), (chunk, chunk, False)]


def scores_of(query: jax.Array, key: jax.Array, mask: jax.Array, is_causal: bool, scale: float) -> jax.Array:
    """float32 `(B, N, T, S)`: scaled scores of chunks `(B, T, N, H)` and `(B, S, K, H)`, `MASKED` where masked."""
    import jax.numpy as jnp

    repeated = jnp.repeat(key, query.shape[2] // key.shape[2], axis=2)
    scores = jnp.einsum("btnh,bsnh->bnts", query, repeated, preferred_element_type="float32") * scale
    visible = mask[:, None, None, :]
    if is_causal:
        places = jnp.arange(query.shape[1])
        visible = visible & (places[:, None] >= places[None, :])
    return jnp.where(visible, scores, MASKED)


def weighted(weights: jax.Array, value: jax.Array) -> jax.Array:
    """float32 `(B, N, T, H)`: sums of values of shared heads `(B, S, K, H)` by weights `(B, N, T, S)`."""
    import jax.numpy as jnp

    repeated = jnp.repeat(value, weights.shape[1] // value.shape[2], axis=2)
    return jnp.einsum("bnts,bsnh->bnth", weights, repeated, preferred_element_type="float32")


def summed_over_queries(weights: jax.Array, x: jax.Array, groups: int) -> jax.Array:
    """float32 `(B, S, K, H)`: sums of x `(B, T, N, H)` over queries and over the heads that share a key."""
    import jax.numpy as jnp

    sums = jnp.einsum("bnts,btnh->bsnh", weights, x, preferred_element_type="float32")
    return sums.reshape(*sums.shape[:2], -1, groups, sums.shape[-1]).sum(3)


def passed_on(arrays: Any, axis: str, size: int) -> Any:
    """What the device before this one in the ring had."""
    import jax

    pairs = [(index, (index + 1) % size) for index in range(size)]
    return jax.tree.map(lambda x: _moved(x, axis, pairs), arrays)


def _zigzag(size: int, parity: int) -> list[tuple[int, int]]:
    """From which device to which one the chunks 2i + parity move."""
    return [(index, min(chunk, 2 * size - 1 - chunk)) for index, chunk in enumerate(range(parity, 2 * size, 2))]


def _moved(x, axis, pairs):
    import jax

    return jax.lax.ppermute(x, axis, pairs)


def _here(axis):
    import jax

    return jax.lax.axis_index(axis)
