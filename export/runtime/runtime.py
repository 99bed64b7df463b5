"""The contract of a runtime: one signature of a file, ready to compute."""

from typing import Protocol

import numpy as np


class Runtime(Protocol):
    """One signature of an artifact in its runtime. Several threads may call it at once.

    Call arguments:
        arrays: dict of input name to numpy array, already checked.

    Returns:
        Dict of output name to numpy array.
    """

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]: ...
