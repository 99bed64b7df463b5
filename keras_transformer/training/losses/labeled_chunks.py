"""The labeled tokens of a batch, a chunk at a time."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Shape, Tensor


class LabeledChunks:
    """Chunks of `chunk_size` tokens with a weight, in their order; the last one is filled with tokens of weight 0.

    Args:
        weights: float32 `(n,)`. Tokens of weight 0 are in no chunk.
        chunk_size: int >= 1.

    Attributes:
        count: int32 `()`. The number of chunks.

    Example:

    >>> import numpy as np
    >>> chunks = LabeledChunks(np.array([0.0, 2.0, 0.0, 1.0, 4.0], "float32"), 2)
    >>> [(np.array(tokens).tolist(), np.array(weights).tolist()) for tokens, weights in map(chunks.chunk, range(2))]
    [([1, 3], [2.0, 1.0]), ([4, 0], [4.0, 0.0])]
    """

    def __init__(self, weights: Tensor, chunk_size: int) -> None:
        count = ops.shape(weights)[0]
        weighted = ops.cast(weights > 0, "int32")
        self._weights, self._size, self._total = weights, chunk_size, ops.sum(weighted)
        self.count = (self._total + chunk_size - 1) // chunk_size
        # Tokens with a weight first; chunk_size more, so that every chunk is whole.
        order = ops.argsort((1 - weighted) * count + ops.arange(count, dtype="int32"))
        self._order = ops.concatenate([ops.cast(order, "int32"), ops.zeros((chunk_size,), "int32")])

    def zeros(self, shape: Shape, dtype: str = "float32") -> Tensor:
        """Returns zeros in which to sum over the chunks.

        Computed, as TensorFlow keeps a constant, of any size, in memory between steps.
        """
        return ops.broadcast_to(ops.cast(self.count < 0, dtype), shape)

    def chunk(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the indices, int32 `(chunk_size,)`, and the weights, float32 `(chunk_size,)`, of the tokens of a chunk."""
        start = index * self._size
        chosen = ops.slice(self._order, [start], [self._size])
        is_in = ops.cast(start + ops.arange(self._size, dtype="int32") < self._total, "float32")
        return chosen, is_in * ops.take(self._weights, chosen, axis=0)
