"""Attention over chosen axes of images, videos and other inputs of rank above 3.

The attention axes are flattened in row-major order into one length, and the other axes, which attention treats as batch
axes, are folded into the batch. Shapes: B batch, F the sizes of the batch axes, T and S the sizes of the attention axes of
queries and keys.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from keras import ops

from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.utils.types import Shape, Tensor


def attention_axes_tuple(attention_axes: int | Iterable[int] | None) -> tuple[int, ...] | None:
    """`attention_axes` as a tuple; None stays None. Raises `ValueError` for anything but ints."""
    if attention_axes is None:
        return None
    axes = (attention_axes,) if isinstance(attention_axes, int) else attention_axes
    if not isinstance(axes, (list, tuple)) or not axes or not all(isinstance(axis, int) for axis in axes):
        raise ValueError(f"`attention_axes` must be an int, list, or tuple. Received: attention_axes={attention_axes}")
    return tuple(axes)


@dataclasses.dataclass(frozen=True)
class AttentionAxes:
    """The axes of an input `(batch, ..., features)` that attention runs over, and those that it treats as batch axes.

    Attributes:
        attention: the attention axes, in the order in which they are flattened.
        batch: the other axes between batch and features, in order.

    Example: attention along the rows of an image.

    >>> import numpy as np
    >>> axes = AttentionAxes.of_rank((2,), 4)
    >>> tuple(axes.fold(np.ones((2, 3, 5, 8))).shape)
    (6, 5, 8)
    """

    attention: tuple[int, ...]
    batch: tuple[int, ...]

    @classmethod
    def of_rank(cls, attention_axes: tuple[int, ...] | None, rank: int) -> AttentionAxes:
        """The axes of inputs of this rank; None for all axes between batch and features.

        Raises:
            ValueError: an axis that is not between batch and features, or twice the same axis.
        """
        inner = tuple(range(1, rank - 1))
        if attention_axes is None:
            return cls(inner, ())
        axes = tuple(axis + rank if axis < 0 else axis for axis in attention_axes)
        if len(set(axes)) < len(axes) or not set(axes) <= set(inner):
            raise ValueError(
                f"`attention_axes` must be different axes between batch and features, {inner} for inputs of rank {rank}. "
                f"Received: attention_axes={attention_axes}"
            )
        return cls(axes, tuple(axis for axis in inner if axis not in axes))

    def check_shapes(self, query_shape: Shape, value_shape: Shape) -> None:
        """Raises `ValueError` for queries and values of different rank or with different batch axes."""
        if len(query_shape) != len(value_shape) or len(query_shape) < 3:
            raise ValueError(
                "`query` and `value` must be of equal rank, 3 or more: (batch, ..., features). "
                f"Received: query_shape={query_shape} and value_shape={value_shape}"
            )
        for axis in self.batch:
            if None not in (query_shape[axis], value_shape[axis]) and query_shape[axis] != value_shape[axis]:
                raise ValueError(
                    f"`query` and `value` must be equal along axis {axis}, which is not an attention axis. "
                    f"Received: query_shape={query_shape} and value_shape={value_shape}"
                )

    def fold_shape(self, shape: Shape) -> Shape:
        """The shape of `fold`'s result; None where a size is unknown."""
        batch = [shape[axis] for axis in (0, *self.batch)]
        return (_product(batch), _product([shape[axis] for axis in self.attention]), shape[-1])

    def scores_shape(self, query_shape: Shape, value_shape: Shape, num_heads: int) -> Shape:
        """`(B, *F, N, *T, *S)`, the shape of the attention scores."""
        batch = (query_shape[axis] for axis in (0, *self.batch))
        lengths = (shape[axis] for shape in (query_shape, value_shape) for axis in self.attention)
        return (*batch, num_heads, *lengths)

    def fold(self, x: Tensor) -> Tensor:
        """`(B, ..., D)` to `(B · F, T, D)`."""
        x, size = self._transposed(x), math.prod(self._sizes(x, self.attention))
        return ops.reshape(x, (-1, size, x.shape[-1]))

    def fold_inputs(self, inputs: MixerInputs) -> MixerInputs:
        """Folds the tokens and masks of a call.

        Raises:
            ValueError: a cache or positions, which are for inputs of rank 3.
        """
        for name in ("cache", "cache_index", "positions"):
            if getattr(inputs, name) is not None:
                raise ValueError(
                    f"`{name}` is for inputs of rank 3, (batch, length, features), not for images or videos."
                )
        query, value, key = inputs.query, inputs.value, inputs.key
        assert value is not None, "`MultiHeadAttention` is called with values"
        return dataclasses.replace(
            inputs,
            query=self.fold(query),
            value=self.fold(value),
            key=None if key is None else self.fold(key),
            query_mask=self.fold_token_mask(inputs.query_mask, query),
            value_mask=self.fold_token_mask(inputs.value_mask, value),
            key_mask=self.fold_token_mask(inputs.key_mask, value),
            attention_mask=self.fold_attention_mask(inputs.attention_mask, query, value),
        )

    def unfold(self, x: Tensor, query: Tensor) -> Tensor:
        """`(B · F, T, ...)` to `(B, ...)`, with the axes of the unfolded queries."""
        order = (*self.batch, *self.attention)
        x = ops.reshape(x, (-1, *self._sizes(query, order), *x.shape[2:]))
        if order == tuple(sorted(order)):
            return x
        inverse = [1 + order.index(axis) for axis in sorted(order)]
        return ops.transpose(x, (0, *inverse, *range(len(order) + 1, len(x.shape))))

    def unfold_scores(self, scores: Tensor, query: Tensor, value: Tensor) -> Tensor:
        """`(B · F, N, T, S)` to `(B, *F, N, *T, *S)`."""
        lengths = (*self._sizes(query, self.attention), *self._sizes(value, self.attention))
        return ops.reshape(scores, (-1, *self._sizes(query, self.batch), scores.shape[1], *lengths))

    def fold_token_mask(self, mask: Tensor | None, tokens: Tensor) -> Tensor | None:
        """A mask of tokens to `(B · F, T)`.

        Args:
            mask: boolean, with the axes of the tokens but the features, or `(B, *T)`: the same for all batch axes; or None.
            tokens: `(B, ..., D)`.
        """
        if mask is None:
            return None
        folded = ops.cast(mask, "bool")
        if len(folded.shape) == 1 + len(self.attention) and self.batch:
            order = sorted(self.attention)
            folded = ops.transpose(folded, (0, *(1 + order.index(axis) for axis in self.attention)))
            for axis in range(len(self.batch)):
                folded = ops.expand_dims(folded, 1 + axis)
            folded = ops.broadcast_to(folded, self._sizes(tokens, (0, *self.batch, *self.attention)))
        elif len(folded.shape) == len(tokens.shape) - 1:
            folded = self._transposed(folded)
        else:
            raise ValueError(
                f"A mask of tokens {tuple(tokens.shape)} must have their axes without the features. "
                f"Received: a mask of shape {tuple(folded.shape)}"
            )
        return ops.reshape(folded, (-1, math.prod(self._sizes(tokens, self.attention))))

    def fold_attention_mask(self, mask: Tensor | None, query: Tensor, value: Tensor) -> Tensor | None:
        """An attention mask to `(B · F, N | 1, T, S)`.

        Args:
            mask: boolean `(B, *F, N, *T, *S)`; without N, or without the last of F and N, or without B, F and N, it is the
                same for all of these; or None.
            query: `(B, ..., D)`.
            value: `(B, ..., D)`.
        """
        if mask is None:
            return None
        folded = ops.cast(mask, "bool")
        lengths = (*self._sizes(query, self.attention), *self._sizes(value, self.attention))
        missing = 2 + len(self.batch) + len(lengths) - len(folded.shape)
        if len(folded.shape) < len(lengths) or missing < 0:
            raise ValueError(
                f"attention_mask must end in the attention axes of queries and keys, {len(lengths)} axes, after at most "
                f"{2 + len(self.batch)} axes of batch and heads. Received shape: {tuple(folded.shape)}"
            )
        for _ in range(missing):
            folded = ops.expand_dims(folded, -len(lengths) - 1)
        heads = folded.shape[1 + len(self.batch)]
        folded = ops.broadcast_to(folded, (*self._sizes(query, (0, *self.batch)), heads, *lengths))
        half = len(lengths) // 2
        return ops.reshape(folded, (-1, heads, math.prod(lengths[:half]), math.prod(lengths[half:])))

    def _transposed(self, x: Tensor) -> Tensor:
        """The batch axes first, the attention axes after them, in order."""
        order = (0, *self.batch, *self.attention)
        if order == tuple(sorted(order)):
            return x
        return ops.transpose(x, (*order, *range(len(order), len(x.shape))))

    def _sizes(self, x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, ...]:
        shape = ops.shape(x)
        return tuple(shape[axis] for axis in axes)


def _product(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None
