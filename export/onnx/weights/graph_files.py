"""Reading and writing ONNX files with their weights as arrays; several files share equal weights."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import onnx
from onnx import numpy_helper

from keras_transformer.export.onnx.weights.weights_file import FILE, WeightsFile, attach, inline
from keras_transformer.export.spec.lazy_array import AnyArray, mapped

if TYPE_CHECKING:
    import numpy as np

# The new file of weights, while the old one is still read.
_NEW = f"{FILE}.new"


def load_arrays(path: pathlib.Path) -> tuple[onnx.ModelProto, dict[str, AnyArray]]:
    """Reads an ONNX file; returns the graph without its weights, and the weights.

    Args:
        path: `pathlib.Path` of the file.

    Returns:
        `(model, arrays)`: `onnx.ModelProto` whose top graph has no initializers, and a dict of their names to arrays, lazy
        where they are in another file.
    """
    model = onnx.load(str(path), load_external_data=False)
    folder = pathlib.Path(path).parent
    arrays: dict[str, AnyArray] = {tensor.name: _array(tensor, folder) for tensor in model.graph.initializer}
    del model.graph.initializer[:]
    return model, arrays


def _array(tensor: onnx.TensorProto, folder: pathlib.Path) -> AnyArray:
    if not tensor.external_data:
        return numpy_helper.to_array(tensor)
    external = {each.key: each.value for each in tensor.external_data}
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return mapped(folder / external["location"], int(external.get("offset", 0)), tuple(tensor.dims), dtype)


class GraphFiles:
    """ONNX files that replace those of a folder: one contains its weights, several share a file of weights.

    Args:
        directory: `pathlib.Path` of the folder.
        count: number of the files.
    """

    def __init__(self, directory: pathlib.Path, count: int) -> None:
        self._directory = directory
        is_shared = count > 1 or (directory / FILE).exists()
        (directory / _NEW).unlink(missing_ok=True)
        self._weights = WeightsFile(directory / _NEW, FILE) if is_shared else None

    def stored(self, array: np.ndarray) -> AnyArray:
        """Returns the same array, which is in the file of weights now instead of the memory, if there is one."""
        return array if self._weights is None else self._weights.stored(array)

    def save(self, loaded: dict[str, tuple[onnx.ModelProto, dict[str, AnyArray]]]) -> None:
        """Writes the results of `load_arrays`, with changes.

        Args:
            loaded: dict of file name to `(model, arrays)`.
        """
        for model, arrays in loaded.values():
            attach(model, arrays, self._weights.initializer if self._weights else inline)
        (self._directory / FILE).unlink(missing_ok=True)
        if (self._directory / _NEW).exists():
            (self._directory / _NEW).rename(self._directory / FILE)
        for path, (model, _) in loaded.items():
            onnx.save(model, str(self._directory / path))
