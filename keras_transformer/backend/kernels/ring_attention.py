"""Softmax attention to rows that are split over devices, whose keys and values pass from device to device."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_transformer.backend.devices.split_rows import SEQUENCE, axis_size, mesh_that_splits_rows
from keras_transformer.backend.kernels.ring_chunks import (
    MASKED,
    in_chunks,
    in_order,
    meeting_chunks,
    passed_on,
    scores_of,
    summed_over_queries,
    weighted,
)
from keras_transformer.utils.types import Tensor


class Ring(NamedTuple):
    """How rows are split over the devices of a mesh.

    Attributes:
        mesh: `keras.distribution.DeviceMesh`.
        sequence: str. The axis of the mesh that splits rows: query, key and value alike.
        batch: str or None. The axis that splits batches.
        heads: str or None. The axis that splits heads, of queries and of keys.
    """

    mesh: keras.distribution.DeviceMesh
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
        causal: bool. Whether a query attends to keys up to its own position only. Devices exchange halves of their rows
            first, so that each has early and late queries: all have the same work, about half of that without causality.
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

    Reference: Liu et al., Ring Attention with Blockwise Transformers, arXiv 2310.01889, algorithm 1; the chunks of causal
    rows as in Dubey et al., The Llama 3 Herd of Models, arXiv 2407.21783, section 3.3.2 (context parallelism).
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

    options = {"axis": ring.sequence, "size": ring.size, "causal": causal, "scale": scale}

    @jax.custom_vjp
    def attend(query, key, value, key_mask):
        return forward(query, key, value, key_mask)[0]

    def forward(*arguments):
        context, *saved = _on_devices(functools.partial(_forward, **options), ring, "tttm", "tccckcs")(*arguments)
        return context, saved

    def backward(saved, gradient):
        return *_on_devices(functools.partial(_backward, **options), ring, "ccckcst", "ttt")(*saved, gradient), None

    attend.defvjp(forward, backward)
    return attend(query, key, value, key_mask)


def _on_devices(function: Callable[..., object], ring: Ring, inputs: str, outputs: str) -> Callable[..., Any]:
    """`function` of the parts of one device.

    "t" stands for tensors `(B, T, N, H)`, "m" for masks `(B, T)`; "c" and "k" for them in chunks, and "s" for sums in
    chunks, `(chunks, B, N, T / chunks)`.
    """
    import jax

    spec = jax.sharding.PartitionSpec
    specs = {
        "t": spec(ring.batch, ring.sequence, ring.heads, None),
        "m": spec(ring.batch, ring.sequence),
        "c": spec(None, ring.batch, ring.sequence, ring.heads, None),
        "k": spec(None, ring.batch, ring.sequence),
        "s": spec(None, ring.batch, ring.heads, ring.sequence),
    }
    return jax.shard_map(
        function,
        mesh=ring.mesh.backend_mesh,
        in_specs=tuple(specs[each] for each in inputs),
        out_specs=tuple(specs[each] for each in outputs),
        check_vma=False,
    )


def _forward(query, key, value, key_mask, *, axis, size, causal, scale):
    """The context of this device's queries; in chunks, the inputs and the context; the log-sum-exp of the scores."""
    import jax.numpy as jnp

    length = query.shape[1]
    inputs = query, key, value, key_mask = [in_chunks(x, axis, size, causal) for x in (query, key, value, key_mask)]
    chunks, batch, rows, heads, width = query.shape

    def meet(state, keys, distance):
        for pair in meeting_chunks(axis, size, distance, causal):
            state = _with_keys(state, query, keys, pair, scale)
        return state, keys

    start = (
        jnp.full((chunks, batch, heads, rows), MASKED),
        jnp.zeros((chunks, batch, heads, rows)),
        jnp.zeros((chunks, batch, heads, rows, width)),
    )
    (largest, total, context), _ = _around(meet, start, (key, value, key_mask), axis, size)
    seen = total > 0
    context = context * jnp.where(seen, 1 / jnp.where(seen, total, 1.0), 0.0)[..., None]
    # Without keys, no weight is above zero in the backward pass.
    log_sum_exp = jnp.where(seen, largest + jnp.log(jnp.where(seen, total, 1.0)), -MASKED)
    context = context.transpose(0, 1, 3, 2, 4).astype(query.dtype)
    return in_order(context, axis, size, length), *inputs, context, log_sum_exp


def _with_keys(state, query, keys, pair, scale):
    """The running maxima, sums and contexts of all chunks, after a chunk of queries has met a chunk of keys."""
    import jax.numpy as jnp

    (key, value, mask), (queries, chunk, is_causal) = keys, pair
    largest, total, context = (x[queries] for x in state)
    scores = scores_of(query[queries], key[chunk], mask[chunk], is_causal, scale)
    new = jnp.maximum(largest, scores.max(-1))
    weights = jnp.where(scores > MASKED / 2, jnp.exp(scores - new[..., None]), 0.0)
    factor = jnp.exp(largest - new)
    total = total * factor + weights.sum(-1)
    context = context * factor[..., None] + weighted(weights.astype(value.dtype), value[chunk])
    return tuple(x.at[queries].set(y) for x, y in zip(state, (new, total, context), strict=True))


def _backward(query, key, value, key_mask, context, log_sum_exp, gradient, *, axis, size, causal, scale):
    """The gradients of query, key and value; those of key and value come home after a whole turn of the ring."""
    import jax.numpy as jnp

    length = gradient.shape[1]
    gradient = in_chunks(gradient, axis, size, causal)
    # (chunks, B, N, T): what the normalization of the softmax subtracts.
    mean = jnp.einsum("cbtnh,cbtnh->cbnt", gradient, context, preferred_element_type="float32")
    queries = query, log_sum_exp, gradient, mean

    def meet(of_query, travelling, distance):
        for pair in meeting_chunks(axis, size, distance, causal):
            of_query, travelling = _with_gradients(of_query, travelling, queries, pair, scale)
        return of_query, travelling

    of_query, of_key, of_value = (jnp.zeros(x.shape, "float32") for x in (query, key, value))
    travelling = (key, value, key_mask, of_key, of_value)
    of_query, (*_, of_key, of_value) = _around(meet, of_query, travelling, axis, size)
    of_key, of_value = passed_on((of_key, of_value), axis, size)
    pairs = ((of_query, query), (of_key, key), (of_value, value))
    return tuple(in_order(found.astype(x.dtype), axis, size, length) for found, x in pairs)


def _with_gradients(of_query, travelling, queries, pair, scale):
    """The gradients of all chunks, after a chunk of queries has met a chunk of keys."""
    import jax.numpy as jnp

    key, value, mask, of_key, of_value = travelling
    index, chunk, is_causal = pair
    query, log_sum_exp, gradient, mean = (x[index] for x in queries)
    groups = query.shape[2] // key.shape[3]
    weights = jnp.exp(scores_of(query, key[chunk], mask[chunk], is_causal, scale) - log_sum_exp[..., None])
    repeated = jnp.repeat(value[chunk], groups, axis=2)
    of_weights = jnp.einsum("btnh,bsnh->bnts", gradient, repeated, preferred_element_type="float32")
    of_scores = (weights * (of_weights - mean[..., None]) * scale).astype(query.dtype)
    of_query = of_query.at[index].add(weighted(of_scores, key[chunk]).transpose(0, 2, 1, 3))
    of_key = of_key.at[chunk].add(summed_over_queries(of_scores, query, groups))
    of_value = of_value.at[chunk].add(summed_over_queries(weights.astype(query.dtype), gradient, groups))
    return of_query, (key, value, mask, of_key, of_value)


def _around(meet, state, travelling, axis, size):
    """Calls `meet` with what this device has, and then with what each of the others has passed on to it."""
    import jax
    import jax.numpy as jnp

    def step(carry, distance):
        state, travelling = carry
        return meet(state, passed_on(travelling, axis, size), distance), None

    return jax.lax.scan(step, meet(state, travelling, 0), jnp.arange(1, size))[0]
