"""Softmax and negative log-likelihood from one pass: TensorFlow's kernel of the cross-entropy takes five times as long."""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.backend.compilation.xla import is_traced_for_xla
from keras_transformer.utils.types import Tensor

# Far above the smallest normal float32, so that a probability has all its digits.
_SMALLEST = 1e-30


def negative_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns `-log softmax(logits)[label]` of each row, on TensorFlow outside of XLA. The softmax is kept for the gradient.

    Args:
        logits: float32 `(n, V)`.
        labels: int32 `(n,)`, in [0, V).

    Returns:
        float32 `(n,)`, with the gradient `softmax(logits) - one_hot(label)`.

    Example:

    >>> import numpy as np
    >>> logits = np.log([[0.25, 0.75], [0.5, 0.5]]).astype("float32")
    >>> np.exp(-np.array(negative_log_likelihood(logits, np.array([1, 0])))).round(3).tolist()
    [0.75, 0.5]
    """

    @ops.custom_gradient
    def losses(logits: Tensor) -> tuple[Tensor, Callable[..., Tensor]]:
        probabilities = ops.softmax(logits, axis=-1)
        likely = _at(probabilities, labels)

        def backward(*arguments: Tensor, upstream: Tensor | None = None) -> Tensor:
            factor = arguments[0] if upstream is None else upstream
            rows = ops.arange(ops.shape(logits)[0], dtype="int32")
            places = ops.stack([rows, ops.cast(labels, "int32")], axis=1)
            return ops.scatter_update(probabilities * ops.expand_dims(factor, -1), places, (likely - 1.0) * factor)

        return _negative_logarithms(likely, lambda: logits, labels), backward

    return losses(logits)


def softmax_and_losses(logits: Callable[[], Tensor], labels: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """Returns the softmax of rows as `(values, scales)`, and the negative log-likelihood of labels. It has no gradient.

    Under XLA `values * scales` is the softmax: a division of all values would be one more pass.

    Args:
        logits: function that computes float32 `(n, V)`. Without XLA the softmax overwrites them, and the rare rows that need
            them again are computed again.
        labels: int32 `(n,)`.

    Returns:
        Float32 `(n, V)`, `(n, 1)` or None for 1, and `(n,)`.

    Example:

    >>> import numpy as np
    >>> logits = np.log([[0.25, 0.75]]).astype("float32")
    >>> values, scales, losses = softmax_and_losses(lambda: logits, np.array([1]))
    >>> np.exp(-np.array(losses)).round(3).tolist()
    [0.75]
    """
    if keras.backend.backend() == "tensorflow" and not is_traced_for_xla():
        probabilities = ops.softmax(logits(), axis=-1)
        return probabilities, None, _negative_logarithms(_at(probabilities, labels), logits, labels)
    x = logits()
    largest = ops.max(x, axis=-1, keepdims=True)
    values = ops.exp(x - largest)
    sums = ops.sum(values, axis=-1, keepdims=True)
    likely = ops.take_along_axis(x, ops.expand_dims(labels, -1), axis=-1)
    return values, 1.0 / sums, ops.squeeze(ops.log(sums) + largest - likely, -1)


def _negative_logarithms(likely: Tensor, logits: Callable[[], Tensor], labels: Tensor) -> Tensor:
    """Returns `-log(likely)`; from the logits if a probability has lost digits."""

    def exact() -> Tensor:
        x = logits()
        return ops.logsumexp(x, axis=-1) - _at(x, labels)

    return ops.cond(ops.all(likely > _SMALLEST), lambda: -ops.log(likely), exact)


def _at(x: Tensor, columns: Tensor) -> Tensor:
    """Returns the element of each row of a matrix at its column, `(n,)`."""
    # A place in a large matrix exceeds int32.
    rows = ops.arange(ops.shape(x)[0], dtype="int64")
    places = rows * ops.cast(ops.shape(x)[1], "int64") + ops.cast(columns, "int64")
    return ops.take(ops.reshape(x, (-1,)), places, axis=0)
