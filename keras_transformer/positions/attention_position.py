"""Base class of positions that act inside attention."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer.utils.types import Shape, Tensor


class AttentionPosition(keras.layers.Layer):
    """Base class of positions that act inside attention. By default each method has no effect.

    A position may rotate the projected query and key (`rotate`), and the value with them (`rotate_all`), add a term to the
    scores (`bias`), and add a term to the context (`values`). Positions are int32 `(T,)` or `(B, T)` for queries and `(S,)`
    or `(B, S)` for keys, or of any other shape that the position object defines, as `AxialRotary` does. With a cache,
    `rotate` receives only the new keys: cached keys are already rotated.

    Attributes:
        needs: frozenset of what a mechanism must support: "bias" (a term added to the scores), "query" (a bias that reads
            the queries), "values" (a term added to the context).
        is_shared: bool. Whether the blocks of a model share one instance and its weights.

    Example:

    >>> import numpy as np
    >>> from keras import ops
    >>> from keras_transformer.attention import SoftmaxAttention
    >>> class Nearest(AttentionPosition):
    ...     needs = frozenset({"bias"})
    ...
    ...     def bias(self, query, query_positions, key_positions):
    ...         distances = ops.abs(query_positions[:, None] - key_positions[None])
    ...         return -100.0 * ops.cast(distances[None, None], "float32")
    >>> x, values = np.zeros((1, 3, 1, 2)), np.arange(3.0).reshape(1, 3, 1, 1)
    >>> SoftmaxAttention()(x, x, values, position=Nearest()).numpy().round(3).ravel().tolist()
    [0.0, 1.0, 2.0]
    """

    needs: frozenset[str] = frozenset()
    is_shared: bool = False

    def build(self, query_shape: Shape, *shapes: Shape) -> None:
        """Creates the weights. The shapes are those of queries, `(B, T, N, H)`, and values, `(B, S, K, H_value)`."""

    def given(self, tokens: Tensor) -> Any:
        """Returns the position for one call of `MultiHeadAttention` with these queries, before their projection `(B, T, D)`.

        That is the position itself, unless it reads the tokens.
        """
        return self

    def rotate(
        self, query: Tensor, key: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the query `(B, T, N, H)` and the key `(B, S, K, H)`, rotated by their positions."""
        return query, key

    def rotate_all(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns query and key of `rotate`, and the value `(B, S, K, H_value)`, rotated if the position does so.

        In training the operations may be others, with shorter gradients, of the same values.

        Only `MultiHeadAttention` calls it; `rotate` of a position that rotates values raises `ValueError` for others.
        """
        return *self.rotate(query, key, query_positions, key_positions), value

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """Returns a float32 term `(1 | B, N, T, S)` to add to the scores, or None. The query is the output of `rotate`."""
        return None

    def values(self, weights: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """Returns a term `(B, T, N, H_value)` to add to the context; the weights are `(B, N, T, S)`."""
        return None
