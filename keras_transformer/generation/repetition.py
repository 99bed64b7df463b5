"""The repetition penalty, given the texts that rows have read."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.generation.arrays import numpy_ops
from keras_transformer.generation.filters import penalize_repetition
from keras_transformer.utils.types import Tensor


def penalize_rows(logits: Tensor, texts: Any, penalty: float) -> Tensor:
    """`filters.penalize_repetition`, given what each row has read.

    Args:
        logits: float `(R, V)`.
        texts: R lists of token ids; not looked at if nothing is to be penalized, so that a generator costs nothing then.
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
    for row, tokens in zip(seen, texts, strict=True):
        row[tokens] = True
    return penalize_repetition(numpy_ops, logits, seen, penalty)
