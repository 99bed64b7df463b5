"""Transformers for Keras 3 that train with `model.fit` and export proven equal to three runtimes.

Importing this package is light: each room (`attention`, `models`, `export`, ...) loads when it is first used.
"""

import importlib
import os

from keras_transformer.version import __version__

# Installed, `export` lies inside this package; in a checkout it stands beside it, and Python started there finds it too.
_HERE = os.path.dirname(os.path.abspath(__file__))
if not os.path.isdir(os.path.join(_HERE, "export")):
    __path__.append(os.path.dirname(_HERE))

_ROOMS = (
    "attention",
    "audio",
    "blocks",
    "catalogue",
    "checkpoints",
    "export",
    "feedforward",
    "generation",
    "models",
    "plots",
    "positions",
    "recurrence",
    "retrieval",
    "tasks",
    "text",
    "training",
    "vision",
)
_FUNCTIONS = {"load_model": "keras_transformer.saving"}

__all__ = ["__version__", *_ROOMS, *_FUNCTIONS]


def __getattr__(name):
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
