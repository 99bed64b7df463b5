"""Cross-entropy of the labeled tokens after a linear head, with its gradient in closed form, a few tokens at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import ops

from keras_transformer.backend.gradients.vjp import not_before
from keras_transformer.backend.kernels.loops import sequential_loop
from keras_transformer.training.losses.labeled_chunks import LabeledChunks
from keras_transformer.training.losses.softmax_likelihood import softmax_and_losses
from keras_transformer.utils.types import Tensor


def linear_crossentropy(
    hidden: Tensor, labels: Tensor, weights: Tensor, table: Tensor, chunk_size: int, trains_table: bool = True
) -> Tensor:
    """Returns `sum_t w_t · CE(E h_t, y_t)` over the tokens with a weight.

    With p the softmax of a token, the gradients are `w (p E - E_y)` of h and `(p - one_hot(y)) ⊗ w h` of E. Of tensors with
    an element for each word and token there are only the logits and p, of a chunk: weights scale rows of h, and labels
    become a scatter of rows.

    Args:
        hidden: float32 `(n, D)`.
        labels: int32 `(n,)`, in [0, V).
        weights: float32 `(n,)`. Tokens of weight 0 cost nothing.
        table: float32 `(V, D)`. E.
        chunk_size: int >= 1. The number of tokens whose logits are in memory at a time.
        trains_table: bool. Whether the table gets a gradient.

    Returns:
        float32 `()`.

    Example:

    >>> import numpy as np
    >>> hidden, table = np.array([[0.0], [1.0]], "float32"), np.log([[1.0], [3.0]]).astype("float32")
    >>> loss = linear_crossentropy(hidden, np.array([0, 0]), np.array([0, 1], "float32"), table, chunk_size=2)
    >>> round(float(np.exp(-loss)), 3)
    0.25

    Reference: Hsu et al., Liger Kernel, arXiv 2410.10989, section 3.2. Deviations: tokens without a label are left out, and
    the terms of the labels are apart.
    """
    chunks = LabeledChunks(weights, chunk_size)

    def add(
        index: Tensor, total: Tensor, of_hidden: Tensor, of_table: Tensor | None, hidden: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        chosen, factors = chunks.chunk(index)
        rows, targets = ops.take(hidden, chosen, axis=0), ops.take(labels, chosen, axis=0)
        loss, of_rows, scaled, probabilities = _of_chunk(rows, targets, factors, table)
        # The tokens that fill the last chunk have weight 0, so that adding to row 0 is right.
        of_hidden = of_hidden + ops.scatter(chosen[:, None], of_rows, ops.shape(hidden))
        if of_table is not None:  # (D, V), in which the product is shorter; transposed once, at the end.
            of_table = of_table + ops.matmul(ops.transpose(scaled), probabilities)
        return total + loss, of_hidden, of_table

    @ops.custom_gradient
    def total(hidden: Tensor, table: Tensor) -> tuple[Tensor, Callable[..., tuple[Tensor, ...]]]:
        shapes = [(), ops.shape(hidden)] + ([ops.shape(table)[::-1]] if trains_table else [])
        zeros = map(chunks.zeros, shapes)

        def step(index: Tensor, total: Tensor, of_hidden: Tensor, *of_table: Tensor) -> Any:
            total, of_hidden, summed = add(index, total, of_hidden, of_table[0] if of_table else None, hidden, table)
            return index + 1, total, of_hidden, *([summed] if of_table else [])

        state = (ops.zeros((), "int32"), *zeros)
        _, loss, of_hidden, *of_table = sequential_loop(lambda index, *others: index < chunks.count, step, state)

        def backward(*arguments: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
            factor = arguments[0] if upstream is None else upstream
            if not of_table:
                return factor * of_hidden, ops.zeros_like(table)
            rows = ops.expand_dims(weights, -1) * not_before(loss, hidden)
            of_labels = ops.scatter(labels[:, None], rows, ops.shape(table))
            return factor * of_hidden, factor * (ops.transpose(of_table[0]) - of_labels)

        return loss, backward

    return total(hidden, table)


def _of_chunk(rows: Tensor, targets: Tensor, weights: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the loss of the tokens of a chunk, its gradient of their states, and the factors of that of the table."""
    factors = ops.expand_dims(weights, -1)
    probabilities, scales, losses = softmax_and_losses(lambda: ops.matmul(rows, ops.transpose(table)), targets)
    scales = factors if scales is None else factors * scales
    of_rows = scales * ops.matmul(probabilities, table) - factors * ops.take(table, targets, axis=0)
    return ops.sum(weights * losses), of_rows, scales * rows, probabilities
