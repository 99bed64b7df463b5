"""Attention to states retrieved from an index, for more keys than fit into a graph."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_transformer.utils.types import Tensor


def attend_to_neighbors(layer: keras.layers.Layer, query: Tensor, index: Any, top_k: int = 16) -> Tensor:
    """Unlimiformer: the output of a cross-attention layer whose heads attend to their `top_k` best states of an index.

    The score of a state h is `(x W_q) · (h W_k) = (x W_q W_kᵀ) · h`, so that one index of states serves all heads and
    layers. As the weights w sum to 1, the context is `(Σ w h) W_v`: states are not projected.

    Args:
        layer: a built `MultiHeadAttention`, without position and gate.
        query: float `(B, T, D_query)`.
        index: `NearestNeighbors` of the states `(S, D)`, which are keys and values.
        top_k: int >= 1.

    Returns:
        The output `(B, T, D_query)`. With `top_k >= S` it equals softmax attention, otherwise `RetrievalAttention`.

    Raises:
        ValueError: the layer has a position or a gate, or no projection of keys.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.retrieval import NearestNeighbors
    >>> layer, states, index = MultiHeadAttention(2, 4), np.random.normal(size=(50, 8)), NearestNeighbors()
    >>> x = np.ones((1, 3, 8))
    >>> layer.build(x.shape, x.shape)
    >>> index.add(states)
    >>> np.allclose(attend_to_neighbors(layer, x, index, 50), layer(x, states[None]), atol=1e-5)
    True

    Reference: Bertsch et al., Unlimiformer, arXiv 2305.01625, section 2.3. The key bias is omitted: it adds a constant to
    the scores of a query.
    """
    if layer.position is not None or layer._use_gate or layer.key_dense is None:
        raise ValueError("attend_to_neighbors does not support a layer with a position, a gate or shared keys.")
    groups = layer.num_heads // layer.num_key_value_heads
    query = layer.query_dense(query)  # (B, T, N, H)
    key_kernel, value_kernel = (ops.repeat(x.kernel, groups, axis=1) for x in (layer.key_dense, layer.value_dense))
    wanted = ops.einsum("btnh,dnh->btnd", query, key_kernel) / math.sqrt(layer.key_dim)
    scores, ids = index.search(ops.convert_to_numpy(wanted), top_k)
    states = index.vectors(ids)  # (B, T, N, top_k, D)
    weights = ops.softmax(ops.convert_to_tensor(scores), axis=-1)
    mixed = ops.einsum("btns,btnsd->btnd", weights, ops.convert_to_tensor(states))
    context = ops.einsum("btnd,dnh->btnh", mixed, value_kernel)
    if layer.use_bias:
        context = context + ops.repeat(layer.value_dense.bias, groups, axis=0)
    return layer.output_dense(context)
