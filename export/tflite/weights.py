"""The weights of a TFLite file: where each is read, and which Keras variable it came from."""

import dataclasses

import numpy as np

from keras_transformer.export.tflite.graph import graphs, schema, shape_of, size_of

# Fewer numbers than these are not worth the operators.
_SMALL = 2048
_SAMPLES = 64
_LARGEST = 6e4
# Operators, and the input, whose kernels read quantized weights with a scale for each row (the first axis).
ROWS = {"FULLY_CONNECTED": 1, "EMBEDDING_LOOKUP": 1, "CONV_2D": 1}


@dataclasses.dataclass
class Weight:
    """One weight, however many graphs read it.

    Args:
        buffer: index of its buffer.
        values: float32 array.
        name: path of the Keras variable, or the tensor's name where none is like it.
        tensors: list of `(Graph, index of the tensor)`.
        is_variable: whether a Keras variable is like it; other constants are tables that someone computed.
    """

    buffer: int
    values: np.ndarray
    name: str
    tensors: list
    is_variable: bool = False


def readers(graph, index):
    """`(operator, place)` of every input of a graph's operators that is this tensor."""
    return [
        (operator, place)
        for operator in graph.subgraph.operators
        for place, tensor in enumerate([] if operator.inputs is None else operator.inputs)
        if tensor == index
    ]


def find_weights(model, variables=()):
    """The weights worth quantizing: float32 constants of two axes or more.

    Args:
        model: `ModelT`.
        variables: Keras variables, to name the weights by.

    Returns:
        List of `Weight`, by buffer.
    """
    found = {}
    for graph in graphs(model):
        ends = {*_indices(graph.subgraph.inputs), *_indices(graph.subgraph.outputs)}
        for index, tensor in enumerate(graph.tensors):
            if _is_large(model, tensor):
                found.setdefault(tensor.buffer, []).append((graph, index, index in ends))
    weights = []
    for buffer, places in sorted(found.items()):
        shapes = {shape_of(graph.tensors[index]) for graph, index, _ in places}
        if len(shapes) == 1 and not any(is_end for *_, is_end in places):
            values = np.frombuffer(np.ascontiguousarray(model.buffers[buffer].data), "float32").reshape(*shapes)
            if np.abs(values).max() > _LARGEST:  # a mask that is added: to be scaled down would be to lose the rest
                continue
            name = places[0][0].tensors[places[0][1]].name.decode()
            weights.append(Weight(buffer, values, name, [(graph, index) for graph, index, _ in places]))
    _name(weights, variables)
    return weights


def _indices(indices):
    return [] if indices is None else list(indices)


def _is_large(model, tensor):
    is_float = tensor.type == schema().TensorType.FLOAT32 and len(shape_of(tensor)) > 1
    return is_float and np.prod(shape_of(tensor)) >= _SMALL and size_of(model.buffers[tensor.buffer])


def _name(weights, variables):
    """Names weights by values: the converter transposes kernels, merges axes, cuts tables, multiplies constants in."""
    arrays = [(each.path, np.asarray(each)) for each in variables if len(each.shape) > 1]
    for weight in weights:
        for path, array in arrays:
            if _is_like(weight.values.ravel(), array) or _is_start(weight.values, array):
                weight.name, weight.is_variable = path, True
                break


def _is_start(values, array):
    """Whether a weight is the first rows of a table."""
    fits = values.size < array.size and values.shape[-1] == array.shape[-1]
    return fits and np.array_equal(values.ravel(), array.ravel()[: values.size])


def _is_like(flat, array):
    """Whether a weight is a variable times a number, its axes in the same order or rotated."""
    if array.size != flat.size:
        return False
    for split in range(max(array.ndim, 1)):
        rows = int(np.prod(array.shape[:split]))
        rotated = array.reshape(rows, -1).T
        if _proportional(flat, rotated):
            return True
    return False


def _proportional(flat, rotated):
    places = np.linspace(0, flat.size - 1, _SAMPLES).astype(int)
    other = rotated[places // rotated.shape[1], places % rotated.shape[1]].astype("float64")
    sample = flat[places].astype("float64")
    peak = np.abs(other).argmax()
    if other[peak] == 0:
        return False
    return np.allclose(sample * other[peak], other * sample[peak], rtol=1e-4, atol=1e-6 * other[peak] ** 2)
