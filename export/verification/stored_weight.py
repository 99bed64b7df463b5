"""One weight as a written file stores it, for the comparison with the Keras variables."""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass
class StoredWeight:
    """An array of numbers in a written float file.

    Args:
        name: name in the file, or another one that finds it there.
        values: numpy array, which may be mapped from the file.
        origin: name of the variable that it was made of, if the format keeps names; otherwise None.
        is_named_exactly: bool. Whether `origin` is the name in the file, and not only a part of it.
        bound: the largest rounding error of each element (broadcastable to `values`) of a constant that the converter
            computed; None for a weight that must be equal bit for bit.
        readers: names of the operations that read it, if the format keeps names.

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
