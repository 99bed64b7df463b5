"""The arrays of a batch by name."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np


def named_leaves(x: Any, y: Any = None, sample_weight: Any = None) -> list[tuple[str, np.ndarray]]:
    """Returns the arrays of a batch with the names that messages use.

    Args:
        x, y, sample_weight: arrays, or dicts, lists and tuples of arrays, or None.

    Returns:
        list of (name, array). A dict of inputs has the names of its keys; others are "x", "y" or "sample_weight" with an
        index or a key.

    Example:

    >>> [name for name, _ in named_leaves({"token_ids": np.zeros(2)}, (np.zeros(2), np.zeros(2)))]
    ['token_ids', 'y[0]', 'y[1]']
    """
    found: list[tuple[str, np.ndarray]] = []
    if isinstance(x, dict):
        for name, value in x.items():
            _collect(str(name), value, found)
    else:
        _collect("x", x, found)
    _collect("y", y, found)
    _collect("sample_weight", sample_weight, found)
    return found


def _collect(name, value, found):
    if value is None:
        return
    if isinstance(value, dict):
        for key, each in value.items():
            _collect(f"{name}[{key!r}]", each, found)
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            _collect(f"{name}[{index}]", each, found)
    else:
        found.append((name, np.asarray(keras.ops.convert_to_numpy(value))))
