"""The weights of a TFLite file: their consumers and the Keras variables that they came from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.data.limits import SMALL
from keras_transformer.export.quantization.ranges import LARGEST
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import indices, schema, shape_of, size_of

if TYPE_CHECKING:
    import keras
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, TensorT

_SAMPLES = 64
# Axes of the weight of a convolution.
_CONVOLUTION = 4
# Operators, with the input, whose kernels read quantized weights with a scale for each row (the first axis).
ROWS = {"FULLY_CONNECTED": 1, "EMBEDDING_LOOKUP": 1, "CONV_2D": 1}


@dataclasses.dataclass
class Weight:
    """A weight with its consumers in all graphs.

    Args:
        buffer: index of its buffer.
        content: bytes of its float32 numbers: an array, or an object that is one when it is read.
        shape: its shape.
        name: path of the Keras variable, or the name of the tensor if no variable matches.
        tensors: list of `(Graph, index of the tensor)`.
        is_variable: bool. Whether it is a Keras variable; other constants are computed tables.
    """

    buffer: int
    content: Any
    shape: tuple[int, ...]
    name: str
    tensors: list[tuple[Graph, int]]
    is_variable: bool = False

    @property
    def values(self) -> np.ndarray:
        """The numbers, which are read each time."""
        return np.frombuffer(np.ascontiguousarray(self.content), "float32").reshape(self.shape)


def readers(graph: Graph, index: int) -> list[tuple[OperatorT, int]]:
    """Returns `(operator, input position)` of every consumer of a tensor."""
    return [
        (operator, position)
        for operator in graph.subgraph.operators
        for position, tensor in enumerate(indices(operator.inputs))
        if tensor == index
    ]


def dequantize_for_others(graph: Graph, index: int, direct: Collection[str]) -> None:
    """Inserts a `DEQUANTIZE` between a weight and consumers without quantized kernels; runtimes run it once."""
    others = [
        (operator, position)
        for operator, position in readers(graph, index)
        if graph.kind(operator) not in direct or position != ROWS[graph.kind(operator)]
    ]
    if not others:
        return
    tensor = graph.tensors[index]
    output = graph.add_tensor(f"{tensor.name.decode()}/float", "FLOAT32", tuple(map(int, tensor.shape)))
    for operator, position in others:
        operator.inputs = np.where(np.arange(len(operator.inputs)) == position, output, operator.inputs).astype("int32")
    graph.insert(0, "DEQUANTIZE", (index,), (output,))


def find_weights(model: ModelT, variables: Sequence[keras.Variable] = (), least: int = SMALL) -> list[Weight]:
    """Finds the weights to quantize: large float32 constants of rank 2 or more.

    Args:
        model: `ModelT`.
        variables: Keras variables, to name the weights by.
        least: int, numbers of the smallest weight.

    Returns:
        List of `Weight`, by buffer.
    """
    found: dict[int, list[tuple[Graph, int, bool]]] = {}
    for graph in graphs(model):
        ends = {*indices(graph.subgraph.inputs), *indices(graph.subgraph.outputs)}
        for index, tensor in enumerate(graph.tensors):
            if _is_large(model, tensor, least):
                found.setdefault(tensor.buffer, []).append((graph, index, index in ends))
    weights = []
    for buffer, positions in sorted(found.items()):
        shapes = {shape_of(graph.tensors[index]) for graph, index, _ in positions}
        if len(shapes) == 1 and not any(is_end for *_, is_end in positions):
            name = positions[0][0].tensors[positions[0][1]].name.decode()
            tensors = [(graph, index) for graph, index, _ in positions]
            weights.append(Weight(buffer, model.buffers[buffer].data, shapes.pop(), name, tensors))
    known = [_Variable(each) for each in variables if len(each.shape) > 1]
    return [weight for weight in weights if _is_named(weight, known)]


def name_by_channels(weights: Sequence[Weight], variables: Sequence[keras.Variable]) -> None:
    """Names weights of convolutions, into which factors of channels were folded, by the variables that they are made of.

    Args:
        weights: some of the result of `find_weights`, changed in place.
        variables: the Keras variables.
    """
    kernels = [each for each in variables if len(each.shape) > 2]
    for weight in weights if kernels else ():
        if weight.is_variable or len(weight.shape) != _CONVOLUTION:
            continue
        values = weight.values
        rows = values.reshape(values.shape[-1 if values.shape[0] == 1 else 0], -1)
        rows = values.reshape(-1, values.shape[-1]).T if values.shape[0] == 1 else rows
        weight.name = next((each.path for each in kernels if _is_by_channel(rows, np.asarray(each))), weight.name)


def _is_by_channel(rows: np.ndarray, kernel: np.ndarray) -> bool:
    """Whether each row of a weight is a multiple of that of a kernel `(..., I, O)`, or `(..., C, M)` of a depthwise one."""
    if rows.size != kernel.size:
        return False
    columns = (kernel.reshape(-1, kernel.shape[-1]), kernel.reshape(-1, kernel.shape[-2] * kernel.shape[-1]))
    return any(each.T.shape == rows.shape and _are_proportional(rows, each.T) for each in columns)


def _are_proportional(rows: np.ndarray, others: np.ndarray) -> bool:
    peaks = np.abs(others).argmax(axis=1)[:, None]
    ours, theirs = (np.take_along_axis(each, peaks, 1) for each in (rows, others))
    return np.allclose(rows * theirs, others * ours, rtol=1e-4, atol=1e-6 * float(np.abs(theirs * ours).max()))


def _is_large(model: ModelT, tensor: TensorT, least: int) -> bool:
    is_float = tensor.type == schema().TensorType.FLOAT32 and len(shape_of(tensor)) > 1
    return is_float and math.prod(shape_of(tensor)) >= least and size_of(model.buffers[tensor.buffer]) > 0


def _is_named(weight: Weight, known: list[_Variable]) -> bool:
    """Names a weight by its values: the converter transposes kernels, merges axes, cuts tables and folds factors.

    Returns:
        False for an additive mask: its scale would round the rest to 0.
    """
    values = weight.values
    if max(values.max(), -values.min()) > LARGEST:
        return False
    flat = values.reshape(-1)
    variable = next((each for each in known if each.is_like(flat) or each.starts_with(values)), None)
    if variable is not None:
        weight.name, weight.is_variable = variable.path, True
    return True


class _Variable:
    """A Keras variable, of which only samples stay in memory."""

    def __init__(self, variable: keras.Variable) -> None:
        from keras_transformer.export.graph.traced import lazy_array

        self.path, self._array = variable.path, lazy_array(variable)
        array = np.asarray(self._array)
        self._start = array[(0,) * (array.ndim - 1)].copy()
        positions = np.linspace(0, array.size - 1, _SAMPLES).astype(int)
        # With its axes in the same order or rotated.
        rotated = [array.reshape(math.prod(array.shape[:split]), -1).T for split in range(array.ndim)]
        samples = [each[positions // each.shape[1], positions % each.shape[1]] for each in rotated]
        self._samples, self._positions = [each.astype("float64") for each in samples], positions

    def is_like(self, flat: np.ndarray) -> bool:
        """Whether a weight is a multiple of the variable."""
        if self._array.size != flat.size:
            return False
        sample = flat[self._positions].astype("float64")
        return any(_proportional(sample, each) for each in self._samples)

    def starts_with(self, values: np.ndarray) -> bool:
        """Whether a weight is the first rows of the variable, which is a table."""
        if values.size >= self._array.size or values.shape[-1] != self._array.shape[-1]:
            return False
        flat = values.reshape(-1)
        is_possible = np.array_equal(flat[: len(self._start)], self._start)
        return is_possible and np.array_equal(flat, np.asarray(self._array).reshape(-1)[: flat.size])


def _proportional(sample: np.ndarray, other: np.ndarray) -> bool:
    peak = np.abs(other).argmax()
    if other[peak] == 0:
        return False
    return np.allclose(sample * other[peak], other * sample[peak], rtol=1e-4, atol=1e-6 * other[peak] ** 2)
