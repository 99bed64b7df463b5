"""The weights of a TFLite file: their consumers and the Keras variables that they came from."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs, schema, shape_of, size_of

# Smaller weights are not quantized: the operators would cost more.
_SMALL = 2048
_SAMPLES = 64
_LARGEST = 6e4
# Operators, with the input, whose kernels read quantized weights with a scale for each row (the first axis).
ROWS = {"FULLY_CONNECTED": 1, "EMBEDDING_LOOKUP": 1, "CONV_2D": 1}


@dataclasses.dataclass
class Weight:
    """A weight with its consumers in all graphs.

    Args:
        buffer: index of its buffer.
        values: float32 array.
        name: path of the Keras variable, or the name of the tensor if no variable matches.
        tensors: list of `(Graph, index of the tensor)`.
        is_variable: bool. Whether it is a Keras variable; other constants are computed tables.
    """

    buffer: int
    values: np.ndarray
    name: str
    tensors: list[tuple[Graph, int]]
    is_variable: bool = False


def readers(graph: Graph, index: int) -> list[tuple[Any, int]]:
    """Returns `(operator, input position)` of every consumer of a tensor."""
    return [
        (operator, position)
        for operator in graph.subgraph.operators
        for position, tensor in enumerate([] if operator.inputs is None else operator.inputs)
        if tensor == index
    ]


def find_weights(model: Any, variables: Sequence[Any] = ()) -> list[Weight]:
    """Finds the weights to quantize: large float32 constants of rank 2 or more.

    Args:
        model: `ModelT`.
        variables: Keras variables, to name the weights by.

    Returns:
        List of `Weight`, by buffer.
    """
    found: dict[int, list[tuple[Any, int, bool]]] = {}
    for graph in graphs(model):
        ends = {*_indices(graph.subgraph.inputs), *_indices(graph.subgraph.outputs)}
        for index, tensor in enumerate(graph.tensors):
            if _is_large(model, tensor):
                found.setdefault(tensor.buffer, []).append((graph, index, index in ends))
    weights = []
    for buffer, positions in sorted(found.items()):
        shapes = {shape_of(graph.tensors[index]) for graph, index, _ in positions}
        if len(shapes) == 1 and not any(is_end for *_, is_end in positions):
            values = np.frombuffer(np.ascontiguousarray(model.buffers[buffer].data), "float32").reshape(*shapes)
            if np.abs(values).max() > _LARGEST:  # An additive mask: its scale would round the rest to 0.
                continue
            name = positions[0][0].tensors[positions[0][1]].name.decode()
            weights.append(Weight(buffer, values, name, [(graph, index) for graph, index, _ in positions]))
    _name(weights, variables)
    return weights


def _indices(indices):
    return [] if indices is None else list(indices)


def _is_large(model: Any, tensor: Any) -> bool:
    is_float = tensor.type == schema().TensorType.FLOAT32 and len(shape_of(tensor)) > 1
    return is_float and math.prod(shape_of(tensor)) >= _SMALL and size_of(model.buffers[tensor.buffer]) > 0


def _name(weights: list[Weight], variables: Sequence[Any]) -> None:
    """Names weights by values: the converter transposes kernels, merges axes, cuts tables and folds factors."""
    arrays = [(each.path, np.asarray(each)) for each in variables if len(each.shape) > 1]
    for weight in weights:
        for path, array in arrays:
            if _is_like(weight.values.ravel(), array) or _is_start(weight.values, array):
                weight.name, weight.is_variable = path, True
                break


def _is_start(values, array: np.ndarray):
    """Whether a weight is the first rows of a table."""
    fits = values.size < array.size and values.shape[-1] == array.shape[-1]
    return fits and np.array_equal(values.ravel(), array.ravel()[: values.size])


def _is_like(flat, array: np.ndarray):
    """Whether a weight is a multiple of a variable, with its axes in the same order or rotated."""
    if array.size != flat.size:
        return False
    for split in range(max(array.ndim, 1)):
        rows = int(np.prod(array.shape[:split]))
        rotated = array.reshape(rows, -1).T
        if _proportional(flat, rotated):
            return True
    return False


def _proportional(flat, rotated):
    positions = np.linspace(0, flat.size - 1, _SAMPLES).astype(int)
    other = rotated[positions // rotated.shape[1], positions % rotated.shape[1]].astype("float64")
    sample = flat[positions].astype("float64")
    peak = np.abs(other).argmax()
    if other[peak] == 0:
        return False
    return np.allclose(sample * other[peak], other * sample[peak], rtol=1e-4, atol=1e-6 * other[peak] ** 2)
