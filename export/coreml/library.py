"""coremltools, without the frameworks that it converts models of."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_FRAMEWORKS = ("tensorflow", "torch", "sklearn", "transformers")


def coremltools(module: str = "") -> ModuleType:
    """The package, or one of its modules.

    It imports TensorFlow, PyTorch and others where it finds them, which takes seconds, and nothing here needs them.

    Args:
        module: name of the module in the package.
    """
    absent = [each for each in _FRAMEWORKS if each not in sys.modules]
    blocked: dict[str, Any] = dict.fromkeys(absent)
    sys.modules.update(blocked)
    try:
        importlib.import_module("coremltools")
        return importlib.import_module(f"coremltools.{module}" if module else "coremltools")
    finally:
        for each in absent:
            sys.modules.pop(each, None)
