"""The bytes of the constants of a TFLite file, in the order in which the graphs use them."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Iterator

from keras_transformer.export.data.weights import WeightBytes
from keras_transformer.export.tflite.graph import Graph, graphs, shape_of
from keras_transformer.export.tflite.tree import read_file, schema, size_of
from keras_transformer.export.tflite.uses import indices

# Names that the converter gives to constants without one.
_NUMBERED = re.compile(r"(arith\.constant|keras_variable_|tfl\.)\S*")


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
