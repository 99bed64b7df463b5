"""Position biases of the tiles of blockwise attention, as functions of their weights, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import keras
from keras import ops

from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition


class TilePosition:
    """The bias and value terms of a position, tile by tile, with the gradients of its weights.

    A custom gradient does not see variables. Therefore the weights are read once, passed as arguments, and replace the
    variables during the computation.

    Args:
        position: an `AttentionPosition` that is built, or None.

    Attributes:
        weights: list of tensors: the trainable weights, to pass to the methods.
    """

    def __init__(self, position: AttentionPosition | None) -> None:
        self._position = position
        variables = [] if position is None else position.variables
        # A copy, as TensorFlow would pass the variable itself.
        self._values = [(variable, ops.copy(variable.value)) for variable in variables]
        self._learned = [pair for pair in self._values if pair[0].dtype.startswith(("float", "bfloat"))]
        self.weights = [value for _, value in self._learned]

    def bias(self, query: Tensor, positions: tuple[Tensor, Tensor], weights: Sequence[Tensor]) -> Tensor | None:
        """Float32 `(1 | B, N, t, s)`, or None.

        Args:
            query: a block `(B, N, t, H)`, as `AttentionPosition.rotate` left it.
            positions: positions of the queries and of the keys of the tile.
            weights: tensors in place of `self.weights`.
        """
        if self._position is None or "bias" not in self._position.needs:
            return None
        with self._with_weights(weights):
            bias = self._position.bias(ops.transpose(query, (0, 2, 1, 3)), *positions)
        return None if bias is None else ops.cast(bias, "float32")

    def bias_and_gradient(
        self, query: Tensor, positions: tuple[Tensor, Tensor], weights: Sequence[Tensor]
    ) -> tuple[Tensor | None, Callable[[Tensor], tuple[Tensor | None, Sequence[Tensor]]]]:
        """`bias`, and a function of output gradients `(B, N, t, s)` to the gradients of the query and of each weight.

        Returns:
            `(bias, gradient)`; the gradient of the query is None where the bias does not read it.
        """
        reads_query, shape = self._needs("query"), (*ops.shape(query)[:3], ops.shape(positions[1])[-1])

        def spread(*arguments: Tensor) -> Tensor:
            # Broadcast, so that gradients are summed over a shared batch and shared heads.
            block, rest = (arguments[0], arguments[1:]) if reads_query else (query, arguments)
            return ops.broadcast_to(self.bias(block, positions, rest), shape)

        arguments = [query, *weights] if reads_query else weights
        if not self._needs("bias") or not arguments:
            return self.bias(query, positions, weights), lambda slopes: (None, [])
        bias, pullback = vjp(spread, *arguments)

        def gradient(slopes: Tensor) -> tuple[Tensor | None, Sequence[Tensor]]:
            found = pullback(slopes)
            return (found[0], found[1:]) if reads_query else (None, found)

        return bias, gradient

    def values(self, factors: Tensor, positions: tuple[Tensor, Tensor], weights: Sequence[Tensor]) -> Tensor | None:
        """A term `(B, N, t, H_value)` of the context, linear in the factors of the values `(B, N, t, s)`; or None."""
        if self._position is None or "values" not in self._position.needs:
            return None
        with self._with_weights(weights):
            return ops.transpose(self._position.values(factors, *positions), (0, 2, 1, 3))

    def values_gradient(
        self, factors: Tensor, positions: tuple[Tensor, Tensor], weights: Sequence[Tensor], slopes: Tensor
    ) -> tuple[Tensor | None, Sequence[Tensor]]:
        """The gradients of the factors and of each of the weights, from slopes `(B, N, t, H_value)`; or None."""
        if not self._needs("values"):
            return None, []
        values, pullback = vjp(lambda factors, *weights: self.values(factors, positions, weights), factors, *weights)
        for_factors, *for_weights = pullback(ops.cast(slopes, values.dtype))
        return for_factors, for_weights

    def _needs(self, what: str) -> bool:
        return self._position is not None and what in self._position.needs

    def _with_weights(self, weights: Sequence[Tensor]):
        learned = [(variable, value) for (variable, _), value in zip(self._learned, weights, strict=True)]
        return keras.StatelessScope(self._values + learned, initialize_variables=False)
