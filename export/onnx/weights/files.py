"""ONNX files: models of onnx_ir read and written; weights inside, or in a file of their own that several graphs share.

ONNX Runtime maps such a file into memory. Protocol buffers occur here only: the rest works on onnx_ir.
"""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from keras_transformer.export.data.lazy_array import AnyArray, mapped
from keras_transformer.export.onnx.weights.lazy_tensors import constant_of

FILE = "model.weights"
# The new file of weights, while the old one is still read.
_NEW = f"{FILE}.new"
_INLINE = 1024
_PAGE, _ALIGNMENT = 4096, 64


class WeightsFile:
    """The shared file of weights, written incrementally.

    Args:
        path: `pathlib.Path` of the file.
        name: name by which graphs refer to it; that of `path` when None.
    """

    def __init__(self, path: pathlib.Path, name: str | None = None) -> None:
        self._path, self._name = path, name or path.name
        self._offsets: dict[Hashable, int] = {}
        self._end = 0

    def initializer(self, name: str, array: AnyArray) -> onnx.TensorProto:
        """Returns a tensor for a graph: inline if small, otherwise a reference to the file, without duplicates."""
        if array.nbytes < _INLINE:
            return inline(name, array)
        tensor = onnx.TensorProto(
            name=name,
            data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype),
            dims=array.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        entries = {"location": self._name, "offset": self._offset(array), "length": array.nbytes}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        return tensor

    def stored(self, array: np.ndarray) -> AnyArray:
        """Returns the same array, which is in the file now instead of the memory, unless it is small."""
        if array.nbytes < _INLINE:
            return array
        offset = self._offset(array)
        found = mapped(self._path, offset, array.shape, array.dtype)
        self._offsets[found.key] = offset
        return found

    def _offset(self, array: AnyArray) -> int:
        """Where the file has an array."""
        if isinstance(array, np.ndarray):
            return self._append(np.ascontiguousarray(array))
        if array.key not in self._offsets:  # A graph after another has the same weights.
            self._offsets[array.key] = self._append(np.ascontiguousarray(array))
        return self._offsets[array.key]

    def _append(self, array: np.ndarray) -> int:
        content: Any = array.reshape(-1).view(np.uint8)  # Without a copy.
        digest = hashlib.sha256(content).digest()
        if digest not in self._offsets:
            # Only large tensors are aligned to pages for mapping; small ones would leave gaps.
            unit = _PAGE if array.nbytes >= 8 * _PAGE else _ALIGNMENT
            self._end = -(-self._end // unit) * unit
            with open(self._path, "r+b" if self._path.exists() else "wb") as file:
                file.seek(self._end)
                file.write(content)
            self._offsets[digest] = self._end
            self._end += array.nbytes
        return self._offsets[digest]


def inline(name: str, array: AnyArray) -> onnx.TensorProto:
    """Returns a tensor with inline data."""
    content = np.ascontiguousarray(array).reshape(array.shape)
    return numpy_helper.from_array(content.astype(object) if content.dtype.kind == "S" else content, name)


def read(path: pathlib.Path) -> ir.Model:
    """Reads an ONNX file.

    Args:
        path: `pathlib.Path` of the file.

    Returns:
        `onnx_ir.Model`; weights that are in another file are mapped when they are read.
    """
    return ir.load(str(path))


def write(model: ir.Model, path: pathlib.Path, weights: WeightsFile | None = None) -> None:
    """Writes an ONNX file, without the shapes of what its operators compute.

    Args:
        model: `onnx_ir.Model`.
        path: `pathlib.Path` of the file.
        weights: `WeightsFile` that the initializers go to; they are in the file itself when None.
    """
    initializers = list(model.graph.initializers.values())
    model.graph.initializers.clear()  # They are serialized one at a time.
    proto = ir.to_proto(model)
    proto.doc_string = model.doc_string or ""
    del proto.graph.value_info[:]
    for value in initializers:
        model.graph.initializers.add(value)
        make_tensor = inline if weights is None else weights.initializer
        proto.graph.initializer.append(make_tensor(str(value.name), constant_of(value)))
    onnx.save(proto, str(path))


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

    def save(self, models: Mapping[str, ir.Model]) -> None:
        """Writes the files.

        Args:
            models: dict of file name to `onnx_ir.Model`, which may have arrays of the old files.
        """
        for path, model in models.items():
            write(model, self._directory / path, self._weights)
        if self._weights is not None:
            (self._directory / FILE).unlink(missing_ok=True)
            if (self._directory / _NEW).exists():
                (self._directory / _NEW).rename(self._directory / FILE)
