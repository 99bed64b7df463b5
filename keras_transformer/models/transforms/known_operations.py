"""Operations that are known to compute each token independently of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from keras_transformer.layers.norms import LayerNormalization, RMSNormalization
from keras_transformer.models.building.prefill_exit import PrefillExit

if TYPE_CHECKING:
    from keras_transformer.backend.keras_private.graphs import Node

# Layers that compute each token independently for any weights; no subclasses, which may override `call`.
_ELEMENTWISE = frozenset(
    {
        keras.layers.Dropout,
        keras.layers.Identity,
        keras.layers.Add,
        keras.layers.Subtract,
        keras.layers.Multiply,
        keras.layers.Average,
        keras.layers.Maximum,
        keras.layers.Minimum,
    }
)
_LOOKUPS = frozenset({keras.layers.Embedding, keras.layers.ReversibleEmbedding})
_NORMS = frozenset(
    {keras.layers.LayerNormalization, keras.layers.RMSNormalization, LayerNormalization, RMSNormalization}
)


def is_known(node: Node) -> bool:
    """Whether a node is known to compute each token independently, for inputs with the tokens on axis 1."""
    layer, kind = node.operation, type(node.operation)
    ranks = {len(tensor.shape) for tensor in node.input_tensors}
    if kind in _ELEMENTWISE or kind is PrefillExit:
        return len(ranks) == 1
    if kind in _LOOKUPS:
        return not node.arguments.kwargs.get("reverse", False)
    if kind is keras.layers.Dense:
        return min(ranks) > 2
    if kind in _NORMS:
        rank = min(ranks)
        axes = layer.axis if isinstance(layer.axis, (list, tuple)) else [layer.axis]
        return rank > 2 and all(axis % rank == rank - 1 for axis in axes)
    return False
