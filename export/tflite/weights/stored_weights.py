"""The constants of written TFLite files: for the comparison with the Keras variables, and the sizes of each."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.data.weights import StoredWeight, WeightBytes
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import indices, read_file, schema, shape_of, size_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, TensorT

# Names that the converter gives to constants without one.
_NUMBERED = re.compile(r"(arith\.constant|keras_variable_|tfl\.)\S*")


def stored_weights(directory: pathlib.Path, files: dict[str, str], names: Sequence[str]) -> Iterator[StoredWeight]:
    """Yields the constants of TFLite files.

    Args:
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.
        names: names of the variables; the format keeps none.

    Yields:
        `StoredWeight`; a buffer that several graphs read is yielded once.
    """
    for path in dict.fromkeys(files.values()):
        model = read_file(directory / path)
        uses: dict[int, list[tuple[Graph, int]]] = {}
        for graph in graphs(model):
            graph.find_uses()
            for index, tensor in enumerate(graph.tensors):
                if size_of(model.buffers[tensor.buffer]):
                    uses.setdefault(tensor.buffer, []).append((graph, index))
        for tensors in uses.values():
            graph, index = tensors[0]
            array = _array(model, graph, graph.tensors[index])
            if array is not None:
                labels = {label for each, place in tensors for label in _labels(each, place)}
                yield StoredWeight(graph.tensors[index].name.decode(), array, readers=frozenset(labels))


def _labels(graph: Graph, index: int) -> set[str]:
    """Names of the traced operations that read a constant: the converter names results after them."""
    tensors = [index, *(int(output) for operator in graph.readers.get(index, ()) for output in operator.outputs)]
    names = [label for each in tensors for label in graph.tensors[each].name.decode().split(";")]
    return {part for name in names for part in (name, name.rpartition("/")[0])}


def _array(model: ModelT, graph: Graph, tensor: TensorT) -> np.ndarray | None:
    types = schema().TensorType
    dtypes = {types.FLOAT32: "float32", types.INT32: "int32", types.INT8: "int8", types.INT64: "int64"}
    if tensor.type not in dtypes:
        return None
    data = np.ascontiguousarray(model.buffers[tensor.buffer].data)
    return np.frombuffer(data, dtypes[tensor.type]).reshape(shape_of(tensor))


def weight_bytes(directory: pathlib.Path, paths: Iterable[str]) -> Iterator[WeightBytes]:
    """Yields the constants of TFLite files; a buffer that several graphs read is yielded once.

    Args:
        directory: `pathlib.Path` of the bundle.
        paths: paths of the files in it.

    Yields:
        `WeightBytes`.
    """
    for path in dict.fromkeys(paths):
        model = read_file(directory / path)
        kinds = {value: name.lower() for name, value in vars(schema().TensorType).items() if isinstance(value, int)}
        seen = set()
        for graph in graphs(model):
            graph.find_uses()
            for index, name in _in_order(graph):
                tensor = graph.tensors[index]
                size = size_of(model.buffers[tensor.buffer])
                if size and tensor.buffer not in seen:
                    seen.add(tensor.buffer)
                    yield WeightBytes(name, kinds[tensor.type], tuple(map(int, shape_of(tensor))), size)


def _in_order(graph: Graph) -> Iterator[tuple[int, str]]:
    """Tensors in the order of their first use, with names that say where they are used."""
    seen = set()
    for operator in graph.subgraph.operators:
        for index in indices(operator.inputs):
            if index >= 0 and index not in seen:
                seen.add(index)
                name = graph.tensors[index].name.decode()
                result = graph.tensors[int(operator.outputs[0])].name.decode() if len(operator.outputs) else name
                yield index, result if _NUMBERED.fullmatch(name) else name
    for index in range(len(graph.tensors)):
        if index not in seen:
            yield index, graph.tensors[index].name.decode()
