"""The constants of written ONNX files: for the comparison with the Keras variables, and the sizes of each."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from keras_transformer.export.onnx.graph import all_graphs
from keras_transformer.export.verification.stored_weight import StoredWeight
from keras_transformer.export.viewing.weight_bytes import WeightBytes

# What the writer appends to the name of a weight that it moved or that occurs twice.
_SUFFIX = re.compile(r"(?:/transposed|/as_vector|~\d+|_\d+)$")
# As numpy names them.
_DTYPES = {"float": "float32", "double": "float64"}


def stored_weights(directory: pathlib.Path, files: dict[str, str], names: Sequence[str]) -> Iterator[StoredWeight]:
    """Yields the constants of ONNX files.

    Args:
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.
        names: names of the variables.

    Yields:
        `StoredWeight`; what several files share is yielded once. Kernels of convolutions have Keras's order of axes,
        spatial ones first: if all are of one size, the shape does not tell the two orders apart.
    """
    known, seen = frozenset(names), set()
    for path in dict.fromkeys(files.values()):
        model = onnx.load(str(directory / path), load_external_data=False)
        kernels = _kernels(model.graph)
        for tensor in _tensors(model.graph):
            external = {each.key: each.value for each in tensor.external_data}
            key = (tensor.name, external.get("location"), external.get("offset"), tuple(tensor.dims))
            if external and key in seen:
                continue
            seen.add(key)
            origin = _origin(tensor.name, known)
            array = _array(tensor, (directory / path).parent, external)
            if tensor.name in kernels:
                array = np.moveaxis(array, (1, 0), (-2, -1))
            yield StoredWeight(tensor.name, array, origin, origin == tensor.name)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and constants of the graph and its bodies."""
    for each in all_graphs(graph):
        yield from each.initializer
        for node in each.node:
            for attribute in node.attribute if node.op_type == "Constant" else ():
                if attribute.type == onnx.AttributeProto.TENSOR:
                    attribute.t.name = attribute.t.name or node.output[0]
                    yield attribute.t


def _kernels(graph: onnx.GraphProto) -> set[str]:
    """Names of the kernels of convolutions, which are stored with channels first."""
    nodes = (node for each in all_graphs(graph) for node in each.node)
    return {node.input[1] for node in nodes if node.op_type in ("Conv", "ConvTranspose")}


def _array(tensor: onnx.TensorProto, folder: pathlib.Path, external: dict[str, str]) -> np.ndarray:
    if not external:
        return numpy_helper.to_array(tensor)
    dtype, shape = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
    offset = int(external.get("offset", 0))
    return np.asarray(np.memmap(folder / external["location"], dtype, "r", offset, shape))


def _origin(name: str, known: frozenset[str]) -> str | None:
    """The variable that a constant is named after."""
    while name not in known:
        shorter = _SUFFIX.sub("", name)
        if shorter == name:
            return None
        name = shorter
    return name


def weight_bytes(directory: pathlib.Path, paths: Iterable[str]) -> Iterator[WeightBytes]:
    """Yields the constants of ONNX files; what several files share is yielded once.

    Args:
        directory: `pathlib.Path` of the bundle.
        paths: paths of the files in it.

    Yields:
        `WeightBytes`.
    """
    seen = set()
    for path in dict.fromkeys(paths):
        model = onnx.load(str(directory / path), load_external_data=False)
        for tensor in _in_order(model.graph):
            external = {each.key: each.value for each in tensor.external_data}
            key = (external.get("location"), external.get("offset", "0"))
            if external and key in seen:
                continue
            seen.add(key)
            dtype = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
            dtype = _DTYPES.get(dtype, dtype)
            yield WeightBytes(tensor.name, dtype, tuple(tensor.dims), _size(tensor, external))


def _in_order(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """The initializers and constants of a graph and its bodies, in the order of their first use."""
    graphs = list(all_graphs(graph))
    tensors = {tensor.name: tensor for each in graphs for tensor in each.initializer}
    found: dict[str, onnx.TensorProto] = {}
    for node in (node for each in graphs for node in each.node):
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.type == onnx.AttributeProto.TENSOR:
                attribute.t.name = attribute.t.name or node.output[0]
                found[node.output[0]] = attribute.t
        found |= {name: tensors[name] for name in node.input if name in tensors and name not in found}
    return [*found.values(), *(tensor for name, tensor in tensors.items() if name not in found)]


def _size(tensor: onnx.TensorProto, external: dict[str, str]) -> int:
    if "length" in external:
        return int(external["length"])
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data)
    return int(onnx.numpy_helper.to_array(tensor).nbytes)
