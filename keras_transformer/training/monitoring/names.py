"""How messages name arrays, places in them, layers and variables."""

from __future__ import annotations

import keras
import numpy as np

from keras_transformer.utils.types import Tensors


def named_leaves(
    x: Tensors, y: Tensors | None = None, sample_weight: Tensors | None = None
) -> list[tuple[str, np.ndarray]]:
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


def first_place(values: np.ndarray, wrong: np.ndarray) -> tuple[str, str]:
    """Returns the first value that is wrong, and where it is, as messages write them.

    Example:

    >>> values = np.array([[0, 1], [7, 0]])
    >>> first_place(values, values > 1)
    ('7', 'row 1, column 0')
    """
    index = tuple(int(each) for each in np.argwhere(wrong)[0])
    found = f"{np.asarray(values)[index]:g}" if values.dtype.kind == "f" else str(values[index])
    if len(index) > 2:
        return found, f"index {index}"
    return found, ", ".join(f"{axis} {each}" for axis, each in zip(("row", "column"), index, strict=False))


def path_in(part: keras.layers.Layer, model: keras.Model) -> str:
    """Returns the path of a layer or a variable within a model, without the model's own name."""
    return (getattr(part, "path", None) or part.name).removeprefix(f"{model.name}/")
