"""Softmax attention to rows that are split over devices, whose keys and values pass from device to device."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from keras_transformer.backend.split_rows import SEQUENCE, axis_size, mesh_that_splits_rows
from keras_transformer.utils.types import Tensor

_MASKED = -1e30


class Ring(NamedTuple):
    """How rows are split over the devices of a mesh.

    Attributes:
        mesh: `keras.distribution.DeviceMesh`.
        sequence: str. The axis of the mesh that splits rows: query, key and value alike.
        batch: str or None. The axis that splits batches.
        heads: str or None. The axis that splits heads, of queries and of keys.
    """

    mesh: Any
    sequence: str
    batch: str | None = None
    heads: str | None = None

    @property
    def size(self) -> int:
        """int: the number of devices that a row is split over."""
        return axis_size(self.mesh, self.sequence)


def ring_of_distribution(query: Tensor, key: Tensor) -> Ring | None:
    """Returns the ring of the current `keras.distribution`, if it splits rows and the tensors divide by its devices.

    Args:
        query, key: float `(B, T, N, H)` and `(B, S, K, H)`.

    Returns:
        `Ring`; None if the mesh has no axis named "sequence", on other backends than JAX, and for other shapes.
    """
    mesh = mesh_that_splits_rows()
    batch, length, heads, _ = query.shape
    if mesh is None or length is None or batch is None or length != key.shape[1]:
        return None
    sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))
    if length % sizes[SEQUENCE] or batch % sizes.get("batch", 1):
        return None
    splits_heads = "model" in sizes and key.shape[2] % sizes["model"] == 0 == heads % sizes["model"]
    return Ring(mesh, SEQUENCE, "batch" if "batch" in sizes else None, "model" if splits_heads else None)


def ring_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    ring: Ring,
    key_mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Exact softmax attention, `softmax(Q Kᵀ scale) V`, in which each device has a part of every row.

    A device computes with its queries and the keys and values of one device at a time, which it passes on to the next one,
    with running maxima and sums of the softmax; backward too, where the gradients of keys and values travel with them. No
    device has a whole row of keys, or scores of more than its queries and as many keys. Only on JAX.

    Args:
        query: float `(B, T, N, H)`; T is a multiple of `ring.size`.
        key, value: float `(B, T, K, H)`; N is a multiple of K.
        ring: `Ring`.
        key_mask: bool `(B, T)`, True = may be attended; or None.
        causal: bool. Whether a query attends to keys up to its own position only. All devices still take as long as the
            last one, whose queries attend to all keys.
        scale: float, or None for `1 / √H`.

    Returns:
        The context `(B, T, N, H)`; zeros for queries that attend to no key.

    Raises:
        ValueError: T is not a multiple of the number of devices.

    Example: rows of eight tokens, on one device.

    >>> import keras, numpy as np
    >>> mesh = keras.distribution.DeviceMesh((1,), ("sequence",), ["cpu:0"])
    >>> x = np.random.default_rng(0).normal(size=(1, 8, 2, 4)).astype("float32")
    >>> if keras.backend.backend() == "jax":
    ...     context = ring_attention(x, x, x, Ring(mesh, "sequence"), causal=True)

    Reference: Liu et al., Ring Attention with Blockwise Transformers, arXiv 2310.01889, algorithm 1.
    """
    if query.shape[1] % ring.size or key.shape[1] != query.shape[1]:
        raise ValueError(
            f"Rows must be as long as those of keys and divide by {ring.size} devices. "
            f"Received: {query.shape[1]} queries and {key.shape[1]} keys."
        )
    import jax

    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if key_mask is None:
        key_mask = jax.numpy.ones(key.shape[:2], bool)

    @jax.custom_vjp
    def attend(query, key, value, key_mask):
        return forward(query, key, value, key_mask)[0]

    def forward(query, key, value, key_mask):
        function = functools.partial(_forward, axis=ring.sequence, size=ring.size, causal=causal, scale=scale)
        context, log_sum_exp = _on_devices(function, ring, "tttm", "ts")(query, key, value, key_mask)
        return context, (query, key, value, key_mask, context, log_sum_exp)

    def backward(saved, gradient):
        function = functools.partial(_backward, axis=ring.sequence, size=ring.size, causal=causal, scale=scale)
        return *_on_devices(function, ring, "tttmtst", "ttt")(*saved, gradient), None

    attend.defvjp(forward, backward)
    return attend(query, key, value, key_mask)


def _on_devices(function: Callable[..., Any], ring: Ring, inputs: str, outputs: str) -> Callable[..., Any]:
    """`function` of the parts of one device: "t" for tensors `(B, T, N, H)`, "m" for masks, "s" for sums `(B, N, T)`."""
    import jax

    spec = jax.sharding.PartitionSpec
    specs = {
        "t": spec(ring.batch, ring.sequence, ring.heads, None),
        "m": spec(ring.batch, ring.sequence),
        "s": spec(ring.batch, ring.heads, ring.sequence),
    }
    return jax.shard_map(
        function,
        mesh=ring.mesh.backend_mesh,
        in_specs=tuple(specs[each] for each in inputs),
        out_specs=tuple(specs[each] for each in outputs),
        check_vma=False,
    )


def _forward(query, key, value, key_mask, *, axis, size, causal, scale):
    """The context of this device's queries, and the log-sum-exp of their scores `(B, N, T)`."""
    import jax
    import jax.numpy as jnp

    batch, length, heads, width = query.shape

    def step(carry, index):
        (key, value, mask), largest, total, context = carry
        scores = _scores(query, key, mask, index, axis, size, causal, scale)
        new = jnp.maximum(largest, scores.max(-1))
        weights = jnp.where(scores > _MASKED / 2, jnp.exp(scores - new[..., None]), 0.0)
        factor = jnp.exp(largest - new)
        total = total * factor + weights.sum(-1)
        context = context * factor[..., None] + _weighted(weights.astype(value.dtype), value)
        return (_passed_on((key, value, mask), axis, size), new, total, context), None

    start = (
        (key, value, key_mask),
        jnp.full((batch, heads, length), _MASKED),
        jnp.zeros((batch, heads, length)),
        jnp.zeros((batch, heads, length, width)),
    )
    (_, largest, total, context), _ = jax.lax.scan(step, start, jnp.arange(size))
    seen = total > 0
    context = context * jnp.where(seen, 1 / jnp.where(seen, total, 1.0), 0.0)[..., None]
    # Without keys, no weight is above zero in the backward pass.
    log_sum_exp = jnp.where(seen, largest + jnp.log(jnp.where(seen, total, 1.0)), -_MASKED)
    return context.transpose(0, 2, 1, 3).astype(query.dtype), log_sum_exp


def _backward(query, key, value, key_mask, context, log_sum_exp, gradient, *, axis, size, causal, scale):
    """The gradients of query, key and value; those of key and value come home after a whole turn of the ring."""
    import jax
    import jax.numpy as jnp

    # (B, N, T): what the normalization of the softmax subtracts.
    mean = jnp.einsum("btnh,btnh->bnt", gradient, context, preferred_element_type="float32")

    def step(carry, index):
        (key, value, mask, key_gradient, value_gradient), query_gradient = carry
        groups = query.shape[2] // key.shape[2]
        scores = _scores(query, key, mask, index, axis, size, causal, scale)
        weights = jnp.exp(scores - log_sum_exp[..., None])
        repeated = jnp.repeat(value, groups, axis=2)
        of_weights = jnp.einsum("btnh,bsnh->bnts", gradient, repeated, preferred_element_type="float32")
        of_scores = (weights * (of_weights - mean[..., None]) * scale).astype(query.dtype)
        query_gradient += _weighted(of_scores, key).transpose(0, 2, 1, 3)
        key_gradient += _summed_over_queries(of_scores, query, groups)
        value_gradient += _summed_over_queries(weights.astype(query.dtype), gradient, groups)
        return (_passed_on((key, value, mask, key_gradient, value_gradient), axis, size), query_gradient), None

    zeros = [jnp.zeros(x.shape, "float32") for x in (key, value, query)]
    start = ((key, value, key_mask, *zeros[:2]), zeros[2])
    ((_, _, _, of_key, of_value), of_query), _ = jax.lax.scan(step, start, jnp.arange(size))
    return of_query.astype(query.dtype), of_key.astype(key.dtype), of_value.astype(value.dtype)


def _scores(query, key, mask, index, axis, size, causal, scale):
    """float32 `(B, N, T, S)`: scores with the keys that have been passed on `index` times."""
    import jax
    import jax.numpy as jnp

    here = jax.lax.axis_index(axis)
    repeated = jnp.repeat(key, query.shape[2] // key.shape[2], axis=2)
    scores = jnp.einsum("btnh,bsnh->bnts", query, repeated, preferred_element_type="float32") * scale
    visible = mask[:, None, None, :]
    if causal:
        length = query.shape[1]
        queries, keys = here * length + jnp.arange(length), (here - index) % size * length + jnp.arange(length)
        visible = visible & (queries[:, None] >= keys[None, :])
    return jnp.where(visible, scores, _MASKED)


def _weighted(weights, value):
    """float32 `(B, N, T, H)`: sums of values of shared heads."""
    import jax.numpy as jnp

    repeated = jnp.repeat(value, weights.shape[1] // value.shape[2], axis=2)
    return jnp.einsum("bnts,bsnh->bnth", weights, repeated, preferred_element_type="float32")


def _summed_over_queries(weights, x, groups):
    """float32 `(B, S, K, H)`: sums over queries and over the heads that share a key."""
    import jax.numpy as jnp

    sums = jnp.einsum("bnts,btnh->bsnh", weights, x, preferred_element_type="float32")
    return sums.reshape(*sums.shape[:2], -1, groups, sums.shape[-1]).sum(3)


def _passed_on(arrays, axis, size):
    """What the device before this one in the ring had."""
    import jax

    pairs = [(index, (index + 1) % size) for index in range(size)]
    return jax.tree.map(lambda x: jax.lax.ppermute(x, axis, pairs), arrays)
