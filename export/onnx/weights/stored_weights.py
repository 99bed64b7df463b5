"""The constants of written ONNX files: for the comparison with the Keras variables, and the sizes of each."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx_ir as ir

from keras_transformer.export.data.weights import StoredWeight, WeightBytes
from keras_transformer.export.onnx.graph import all_graphs, all_nodes, name_of
from keras_transformer.export.onnx.weights.files import read
from keras_transformer.export.onnx.weights.lazy_tensors import array_of

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
        graph = read(directory / path).graph
        kernels = _kernels(graph)
        for name, tensor in _constants(graph):
            key = name, _place(tensor), tuple(tensor.shape)
            if key[1] is not None and key in seen:
                continue
            seen.add(key)
            origin, array = _origin(name, known), np.asarray(array_of(tensor))
            if name in kernels:
                array = np.moveaxis(array, (1, 0), (-2, -1))
            yield StoredWeight(name, array, origin, origin == name)


def _constants(graph: ir.Graph) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """Names and tensors of the initializers and constants of the graph and its bodies."""
    for each in all_graphs(graph):
        yield from each.initializers.tensor_items()
        yield from ((name, tensor) for node in each for name, tensor in _constant(node))


def _constant(node: ir.Node) -> list[tuple[str, ir.TensorProtocol]]:
    """The name and the tensor of a constant; nothing of other nodes."""
    tensor = node.attributes.get_tensor("value") if node.op_type == "Constant" else None
    return [] if tensor is None else [(tensor.name or name_of(node.outputs[0]), tensor)]


def _place(tensor: ir.TensorProtocol) -> tuple[object, int | None] | None:
    """Where a tensor is in another file, or None."""
    return (tensor.location, tensor.offset) if isinstance(tensor, ir.ExternalTensor) else None


def _kernels(graph: ir.Graph) -> set[str]:
    """Names of the kernels of convolutions, which are stored with channels first."""
    return {name_of(node.inputs[1]) for node in all_nodes(graph) if node.op_type in ("Conv", "ConvTranspose")}


def _origin(name: str, known: frozenset[str]) -> str | None:
    """The variable that a constant is named after."""
    while name not in known:
        shorter = _SUFFIX.sub("", name)
        if shorter == name:
            return None
        name = shorter
    return name


def weight_bytes(directory: pathlib.Path, paths: Iterable[str]) -> Iterator[WeightBytes]:
    """Yields the constants of ONNX files, in the order in which the graphs use them.

    Args:
        directory: `pathlib.Path` of the bundle.
        paths: paths of the files in it.

    Yields:
        `WeightBytes`; what several files share is yielded once.
    """
    seen = set()
    for path in dict.fromkeys(paths):
        for name, tensor in _in_order(read(directory / path).graph):
            key = _place(tensor)
            if key is None or key not in seen:
                seen.add(key)
                dtype = str(tensor.dtype.name).lower()
                yield WeightBytes(name, _DTYPES.get(dtype, dtype), tuple(tensor.shape.numpy()), tensor.nbytes)


def _in_order(graph: ir.Graph) -> Iterator[tuple[str, ir.TensorProtocol]]:
    """Names and tensors of the initializers and constants of a graph and its bodies, in the order of their first use."""
    found: dict[str, ir.TensorProtocol] = {}
    for node in all_nodes(graph):
        found |= _constant(node)
        for value in node.inputs:
            if value is not None and value.is_initializer() and value.const_value is not None:
                found.setdefault(name_of(value), value.const_value)
    yield from found.items()
    yield from ((name, tensor) for name, tensor in _constants(graph) if name not in found)
