"""Reading and writing ONNX files with their weights as arrays; several files share equal weights."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import onnx
from onnx import numpy_helper

from keras_transformer.export.onnx.weights import FILE, WeightsFile, attach, inline

if TYPE_CHECKING:
    import numpy as np


def load_arrays(path: pathlib.Path) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Reads an ONNX file; returns the graph without its weights, and the weights.

    Args:
        path: `pathlib.Path` of the file.

    Returns:
        `(model, arrays)`: `onnx.ModelProto` whose top graph has no initializers, and a dict of their names to arrays.
    """
    model = onnx.load(str(path), load_external_data=False)
    folder = str(pathlib.Path(path).parent)
    arrays = {tensor.name: numpy_helper.to_array(tensor, folder) for tensor in model.graph.initializer}
    del model.graph.initializer[:]
    return model, arrays


def save(directory: pathlib.Path, loaded: dict[str, tuple[onnx.ModelProto, dict[str, np.ndarray]]]) -> None:
    """Writes the results of `load_arrays`: one file contains its weights, several share a file of weights.

    Args:
        directory: `pathlib.Path` to write into. Its former file of weights is removed.
        loaded: dict of file name to `(model, arrays)`.
    """
    shared = WeightsFile(directory / FILE) if len(loaded) > 1 or (directory / FILE).exists() else None
    (directory / FILE).unlink(missing_ok=True)
    for path, (model, arrays) in loaded.items():
        attach(model, arrays, shared.initializer if shared else inline)
        onnx.save(model, str(directory / path))
