"""Cross-entropy of the labeled tokens only, a few at a time: logits of all tokens are never in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.backend.kernels.loops import sequential_loop
from keras_transformer.backend.variable_values import VariableValues
from keras_transformer.training.losses.cross_entropy import cross_entropy
from keras_transformer.training.losses.labeled_chunks import LabeledChunks
from keras_transformer.utils.types import Tensor


def chunked_crossentropy(
    hidden: Tensor,
    labels: Tensor,
    weights: Tensor,
    head: Callable[[Tensor], Tensor],
    layers: Sequence[keras.layers.Layer],
    chunk_size: int = 128,
    training: bool = True,
) -> Tensor:
    """Returns the sum of weighted cross-entropies, `sum_t w_t · CE(head(h_t), y_t)`, over the tokens with a weight.

    The head runs on `chunk_size` labeled tokens at a time. In training their gradients are computed at once, so that the
    backward pass repeats nothing: memory for logits is that of a chunk, and time that of the labeled tokens.

    Args:
        hidden: float `(n, D)`.
        labels: int32 `(n,)`, in [0, V).
        weights: float32 `(n,)`. Tokens of weight 0 cost nothing.
        head: function of `(1, C, D)` to logits `(1, C, V)`.
        layers: the layers with all variables that `head` reads; trainable ones get gradients.
        chunk_size: int >= 1. C.
        training: bool. Whether gradients are needed.

    Returns:
        float32 `()`.

    Example:

    >>> import numpy as np
    >>> layer = keras.layers.Dense(3, kernel_initializer="zeros", use_bias=False)
    >>> layer.build((None, 2))
    >>> loss = chunked_crossentropy(np.ones((4, 2), "float32"), np.zeros(4, "int32"), np.array([1, 0, 1, 0], "float32"),
    ...     layer, [layer], chunk_size=1)
    >>> round(float(loss / np.log(3)), 4)
    2.0

    Reference: the gradient in the forward pass, as in Hsu et al., Liger Kernel, arXiv 2410.10989, section 3.2. Deviation:
    tokens without a label are left out.
    """
    values = VariableValues(layers)
    sums = _Sums(head, labels, values, LabeledChunks(weights, chunk_size), chunk_size)

    @ops.custom_gradient
    def trained_on(states: Tensor, *trained: Tensor) -> Any:
        total, gradients = sums.with_gradients(states, *trained)

        def backward(*arguments: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
            factor = arguments[0] if upstream is None else upstream
            return tuple(each * ops.cast(factor, each.dtype) for each in gradients)

        return total, backward

    return (trained_on if training else sums.total)(hidden, *values.weights)


class _Sums(NamedTuple):
    """Sums over the chunks, as functions of the states of the tokens and of the weights of the layers."""

    head: Callable[[Tensor], Tensor]
    labels: Tensor
    values: VariableValues
    chunks: LabeledChunks
    chunk_size: int

    def total(self, states: Tensor, *trained: Tensor) -> Tensor:
        """Returns the sum of the losses."""

        def add(index: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
            chosen, loss = self._chunk(index)
            return index + 1, total + loss(ops.take(states, chosen, axis=0), *trained)

        start = (ops.zeros((), "int32"), ops.zeros((), "float32"))
        return sequential_loop(lambda index, total: index < self.chunks.count, add, start)[1]

    def with_gradients(self, states: Tensor, *trained: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Returns the sum of the losses, and its gradients."""

        def add(
            index: Tensor, total: Tensor, gradients: tuple[Tensor, ...]
        ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
            chosen, loss = self._chunk(index)
            value, pullback = vjp(loss, ops.take(states, chosen, axis=0), *trained)
            of_rows, *others = pullback(ops.ones((), "float32"))
            # The tokens that fill the last chunk have gradient 0, so that adding to row 0 is right.
            summed = gradients[0] + ops.scatter(chosen[:, None], of_rows, ops.shape(states))
            rest = [before + ops.cast(new, before.dtype) for before, new in zip(gradients[1:], others, strict=True)]
            return index + 1, total + value, (summed, *rest)

        zeros = tuple(self.chunks.zeros(ops.shape(each), each.dtype) for each in (states, *trained))
        start = (ops.zeros((), "int32"), ops.zeros((), "float32"), zeros)
        _, total, gradients = sequential_loop(lambda index, *others: index < self.chunks.count, add, start)
        return total, gradients

    def _chunk(self, index: Tensor) -> tuple[Tensor, Callable[..., Tensor]]:
        """Returns the indices of the tokens of a chunk, and its loss as a function of their states and of the weights."""
        chosen, ours = self.chunks.chunk(index)

        def loss(rows: Tensor, *trained: Tensor) -> Tensor:
            with self.values.scope(trained):
                logits = ops.reshape(self.head(ops.expand_dims(rows, 0)), (self.chunk_size, -1))
            return ops.sum(ours * cross_entropy(ops.take(self.labels, chosen, axis=0), logits))

        return chosen, loss
