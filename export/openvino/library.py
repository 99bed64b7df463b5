"""OpenVINO as a library that may be missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from keras_transformer.export.runtime.libraries import Library

NAME = "openvino"
OPENVINO = Library("openvino", "openvino")
DEVICE = "CPU"
SUFFIX = ".xml"


def openvino() -> ModuleType:
    """The package.

    Raises:
        MissingLibraryError: it is not installed.
    """
    with OPENVINO.required_by(f"format '{NAME}'"):
        return importlib.import_module(OPENVINO.module)
