"""Imports of TensorFlow in the time that they need."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator

# TensorFlow and Keras import these if they are installed, for functions that no command calls: half of their time.
_UNUSED = ("jax", "matplotlib", "sklearn")


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """Context in which TensorFlow, if it was not imported before, is imported without packages that are not needed.

    Keras imported in it has TensorFlow as its backend, whatever `KERAS_BACKEND` or its file of settings says.
    Garbage is not collected in it: importing creates hundreds of thousands of objects that all stay.
    """
    os.environ["KERAS_BACKEND"] = "tensorflow"
    hidden = [name for name in _UNUSED if name not in sys.modules] if "tensorflow" not in sys.modules else []
    collects = gc.isenabled()
    gc.disable()
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # As if it was not installed.
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
        if collects:
            gc.enable()
