"""A SavedModel whose large weights are splats: constants that repeat one value, which the converter holds as one number.

TensorFlow's converter copies each weight several times, for every signature. Here it works on splats, one value per
weight, and `restored` puts the weights into its result.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.saved_model import convert as saved_model
from keras_transformer.export.spec.traced_graph import TracedGraph, arguments_of, weight_labels
from keras_transformer.export.tflite.weight_layouts import Steps, WeightLayouts

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.spec.export_spec import ExportSpec, Signature
    from keras_transformer.export.spec.traced import TracedModule

# Smaller weights are constants of their own: the converter may compute with them.
_SMALL = 4096


@dataclasses.dataclass(frozen=True)
class Splat:
    """A weight for which a splat stands.

    Args:
        variable: the Keras variable.
        value: the float32 number that stands for all its elements.
        layouts: dict of the kind of consumer to `Steps`, as in `WeightLayouts`.
    """

    variable: keras.Variable
    value: np.float32
    layouts: dict[str, Steps]


class SplatModel:
    """The signatures of a spec with splats instead of large weights.

    Args:
        traced: the `TracedModule`.
        spec: the `ExportSpec`, with its variables.
        names: names of the signatures.

    Attributes:
        splats: list of `Splat`.
        read: dict of signature name to the splat values of the weights that it reads.
        factors: the scalars that occur in the graphs, by which the converter may have multiplied weights.
    """

    def __init__(self, traced: TracedModule, spec: ExportSpec, names: Sequence[str]) -> None:
        variables = dict(zip(weight_labels(spec.variables), spec.variables, strict=True))
        graphs = {name: traced.graphs[name] for name in names}
        found = {name: _layouts(graphs[name]) for name in names}
        self.splats = _splats(variables, list(found.values()))
        self.read = {name: [s.value for label, s in self.splats.items() if label in found[name].read] for name in names}
        self.factors = sorted({value for graph in graphs.values() for value in _scalars(graph.graph_def)})
        constants = {label: _constant(variable, self.splats.get(label)) for label, variable in variables.items()}
        self._functions = {
            name: _with_constants(name, spec.signatures[name], graphs[name], constants) for name in names
        }

    def save(self, path: pathlib.Path) -> None:
        """Writes the SavedModel."""
        saved_model.save(tf.Module(name="splats"), self._functions, path)


def _layouts(graph: TracedGraph) -> WeightLayouts:
    outputs = [name.split(":")[0] for name in graph.outputs.values()]
    return WeightLayouts(graph.graph_def, graph.weights, outputs)


def _splats(variables: dict[str, keras.Variable], found: list[WeightLayouts]) -> dict[str, Splat]:
    """A splat for each large weight whose consumers are known in all graphs and agree."""
    random, splats = np.random.default_rng(0), {}
    for label, variable in variables.items():
        value = np.float32(random.uniform(1, 2))
        if str(variable.dtype) != "float32" or len(variable.shape) < 2 or np.prod(variable.shape) < _SMALL:
            continue
        layouts: dict[str, Steps] = {}
        readers = [each for each in found if label in each.read]
        is_known = all(label in each.layouts for each in readers)
        for kind, steps in (item for each in readers if is_known for item in each.layouts[label].items()):
            is_known = is_known and layouts.setdefault(kind, steps) == steps
        if is_known and readers:
            splats[label] = Splat(variable, value, layouts)
    return splats


def _scalars(graph_def: Any) -> set[float]:
    """The values of all float32 constants of one element, and their reciprocals."""
    nodes = [*graph_def.node, *(node for each in graph_def.library.function for node in each.node_def)]
    tensors = [node.attr["value"].tensor for node in nodes if node.op == "Const"]
    small = [tf.make_ndarray(each) for each in tensors if each.dtype == 1 and _elements(each) == 1]
    values = {float(each.item()) for each in small}
    return values | {float(np.float32(1) / np.float32(each)) for each in values if each}


def _elements(tensor: Any) -> int:
    return int(np.prod([each.size for each in tensor.tensor_shape.dim]))


def _constant(variable: keras.Variable, splat: Splat | None) -> Any:
    """The `TensorProto` of a splat, which has one element, or of a weight."""
    if splat is None:
        return tf.make_tensor_proto(np.asarray(variable))
    return tf.make_tensor_proto(splat.value, shape=tuple(variable.shape))


def _with_constants(name: str, signature: Signature, graph: TracedGraph, constants: dict[str, Any]) -> Any:
    """A signature as a concrete function with constants in place of its weights."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(graph.graph_def)
    for node in graph_def.node:
        if node.name in constants:
            node.op = "Const"
            node.attr.clear()
            node.attr["value"].tensor.CopyFrom(constants[node.name])
            node.attr["dtype"].type = constants[node.name].dtype
    constant = dataclasses.replace(graph, graph_def=graph_def)

    def signature_function(**tensors: Any) -> dict[str, Any]:
        return constant.imported({graph.inputs[key]: each for key, each in tensors.items()})

    signature_function.__name__ = name
    return tf.function(signature_function, autograph=False).get_concrete_function(**arguments_of(signature))
