"""One weight as a written file stores it, for the comparison with the Keras variables."""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass
class StoredWeight:
    """An array of numbers in a written file, dequantized where the file stores codes.

    Args:
        name: name in the file, or another one that finds it there.
        values: numpy array, which may be mapped from the file.
        origin: name of the variable that it was made of, if the format keeps names; otherwise None.
        is_named_exactly: bool. Whether `origin` is the name in the file, and not only a part of it.
        bound: for a quantized weight, the largest rounding error of each element (broadcastable to `values`); None for
            a weight that must be equal bit for bit.
        readers: names of the operations that read it, if the format keeps names.
        rows_are_padded: bool. Whether the rows of `values` may be longer than those of the variable.

    Example:

    >>> StoredWeight("dense/kernel", np.ones((2, 3), "float32"), origin="dense/kernel").values.size
    6
    """

    name: str
    values: np.ndarray
    origin: str | None = None
    is_named_exactly: bool = False
    bound: Any = None
    readers: frozenset[str] = frozenset()
    rows_are_padded: bool = False
