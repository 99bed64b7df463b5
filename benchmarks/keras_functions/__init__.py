"""A case for each public function of `keras.ops` and `keras.activations` that the installed Keras has."""

import keras

from . import core, images, linear_algebra, networks, numbers, options, reductions, tensors  # noqa: F401  They fill `CASES`.
from .case import CASES

__all__ = ["CASES", "functions", "missing"]

_MODULES = {
    "": keras.ops,
    "image.": keras.ops.image,
    "linalg.": keras.ops.linalg,
    "nn.": keras.ops.nn,
    "numpy.": keras.ops.numpy,
    "activations.": keras.activations,
}


def functions():
    """The public functions by name: one that `keras.ops` has too has that name alone."""
    found = {}
    for prefix, module in _MODULES.items():
        for name in dir(module):
            function = getattr(module, name)
            is_new = not prefix or getattr(keras.ops, name, None) is not function
            if callable(function) and not name.startswith("_") and is_new:
                found[prefix + name] = function
    return found


def missing():
    """The functions that have no case, and the cases of functions that do not exist."""
    return sorted(set(functions()) ^ {name for name, _ in CASES})
