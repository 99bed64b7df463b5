"""Choice among the signatures of a TFLite file."""

from typing import Any

import numpy as np


def fitting_signature(signatures: dict[str, Any], default: str, arrays: dict[str, np.ndarray]) -> str:
    """Returns the name of the signature of exactly the shapes of the arrays, otherwise the default.

    Args:
        signatures: dict of signature name to its tuple of input `ArraySpec`.
        default: name of the dynamic signature.
        arrays: dict of input name to array.

    Returns:
        str.

    Example:

    >>> from keras_transformer.export.data.array_spec import ArraySpec
    >>> exact = (ArraySpec("x", "float32", (1, 4), (None, None)),)
    >>> fitting_signature({"serve_1": exact}, "serve", {"x": np.ones((1, 4))})
    'serve_1'
    """
    shapes = {name: tuple(np.shape(array)) for name, array in arrays.items()}
    for name, inputs in signatures.items():
        is_copy = name.startswith(f"{default}_") and not any(axis for each in inputs for axis in each.axes)
        if is_copy and {each.name: tuple(each.shape) for each in inputs} == shapes:
            return name
    return default
