"""The contract of a position that plugs into attention."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer.utils.types import Tensor


class AttentionPosition(keras.layers.Layer):
    """Base of positions that act inside attention; each method does nothing until overridden.

    A position may turn the projected query and key (`rotate`), add a term to the scores (`bias`), and add a term to the
    context (`values`). Positions are int32 of shape `(T,)` or `(B, T)` for queries and `(S,)` or `(B, S)` for keys. With a
    cache, `rotate` is given only the new keys, at their own positions, and cached keys stay as they were turned.

    Attributes:
        needs: what it asks of a mechanism beyond turned queries and keys: "bias" (scores to add to), "query" (the bias
            reads the queries), "values" (weights to add to the context by).
        is_shared: whether the blocks of a model that is given it have one instance, and one set of weights, between them.
    """

    needs = frozenset()
    is_shared = False

    def build(self, *shapes: Any) -> None:
        """Makes weights; the shapes are those of the queries `(B, T, N, H)` and the values `(B, S, K, H_value)`."""

    def rotate(
        self, query: Tensor, key: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the query `(B, T, N, H)` and the key `(B, S, K, H)`, turned by their positions."""
        return query, key

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Returns a float32 term `(1 | B, N, T, S)` to add to the scores, or None; the query is as `rotate` left it."""
        return None

    def values(self, weights: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Returns a term `(B, T, N, H_value)` to add to the context; the weights are `(B, N, T, S)`."""
        return None
