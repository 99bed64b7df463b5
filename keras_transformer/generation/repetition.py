"""The repetition penalty for batch rows, from the tokens that each has read."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.filters import penalize_repetition
from keras_transformer.utils.types import Tensor


def penalize_rows(logits: Tensor, sequences: Any, penalty: float) -> Tensor:
    """Applies `filters.penalize_repetition` for the tokens that each row has read.

    Args:
        logits: float `(R, V)`.
        sequences: iterable of R lists of token ids. It is not consumed if the penalty is 1.
        penalty: float > 0.

    Returns:
        Logits, float `(R, V)`.

    Example:

    >>> penalize_rows(np.array([[2.0, -1.0, 4.0]]), [[0, 1]], penalty=2.0).tolist()
    [[1.0, -2.0, 4.0]]
    """
    if penalty == 1.0:
        return logits
    seen = np.zeros(logits.shape, bool)
    for row, tokens in zip(seen, sequences, strict=True):
        row[tokens] = True
    return penalize_repetition(numpy_ops, logits, seen, penalty)
