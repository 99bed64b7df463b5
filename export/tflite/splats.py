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
from keras_transformer.export.spec.traced import arguments_of_weights, weight_labels
from keras_transformer.export.tflite.weight_layouts import Steps, WeightLayouts

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.spec.export_spec import ExportSpec, Signature
    from keras_transformer.export.spec.traced import TracedModule

# Smaller weights are constants of their own: the converter may compute with them.
_SMALL = 4096
# Attribute that names a Python function.
_GRADIENT = "_gradient_op_type"


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
        functions = {name: traced.weightless(name) for name in names}
        graphs = {name: function.graph.as_graph_def() for name, function in functions.items()}
        found = {name: _layouts(graphs[name], functions[name]) for name in names}
        self.splats = _splats(variables, list(found.values()))
        self.read = {name: [s.value for label, s in self.splats.items() if label in found[name].read] for name in names}
        self.factors = sorted({value for graph in graphs.values() for value in _scalars(graph)})
        constants = {label: _constant(variable, self.splats.get(label)) for label, variable in variables.items()}
        self._functions = {
            name: _with_constants(name, spec.signatures[name], functions[name], graphs[name], constants)
            for name in names
        }

    def save(self, path: pathlib.Path) -> None:
        """Writes the SavedModel."""
        saved_model.save(tf.Module(name="splats"), self._functions, path)


def _layouts(graph_def: Any, function: Any) -> WeightLayouts:
    outputs = [tensor.op.name for tensor in function.structured_outputs.values()]
    return WeightLayouts(graph_def, set(arguments_of_weights(function).values()), outputs)


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


def _with_constants(name: str, signature: Signature, function: Any, graph_def: Any, constants: dict[str, Any]) -> Any:
    """A `weightless` function with constants in place of its further inputs."""
    inputs = {spec.name: f"{spec.name}:0" for spec in signature.inputs}
    outputs = {key: tensor.name for key, tensor in function.structured_outputs.items()}
    for node in (*graph_def.node, *(node for each in graph_def.library.function for node in each.node_def)):
        node.attr.pop(_GRADIENT, None)
    for node in graph_def.node:
        if node.name in constants:
            node.op = "Const"
            node.attr.clear()
            node.attr["value"].tensor.CopyFrom(constants[node.name])
            node.attr["dtype"].type = constants[node.name].dtype
    _remove(graph_def, inputs)

    def signature_function(**tensors: Any) -> dict[str, Any]:
        given = {inputs[key]: tensors[key] for key in inputs}
        results = tf.graph_util.import_graph_def(graph_def, given, list(outputs.values()), name="")
        return {key: tf.identity(each, name=key) for key, each in zip(outputs, results, strict=True)}

    signature_function.__name__ = name
    specs = {each.name: tf.TensorSpec(each.shape, each.dtype, each.name) for each in signature.inputs}
    return tf.function(signature_function, autograph=False).get_concrete_function(**specs)


def _remove(graph_def: Any, names: Any) -> None:
    kept = [node for node in graph_def.node if node.name not in names]
    del graph_def.node[:]
    graph_def.node.extend(kept)
