"""One signature as a TensorFlow graph without weights, kept as a message: a graph in memory is many times as large."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import keras
import tensorflow as tf

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.axes import numbers_of, output_axes, sizes_of
from keras_transformer.export.data.export_spec import Signature
from keras_transformer.export.graph.inlining import inlined, is_layer, without_layers
from keras_transformer.export.graph.part import every_node, node_name
from keras_transformer.export.graph.repeated_layers import RepeatedLayers
from keras_transformer.utils.errors import library_exceptions
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

# What the names of the placeholders of weights begin with.
VARIABLE = "keras_variable_"
# Attribute that names a Python function.
_GRADIENT = "_gradient_op_type"
# Attribute of loops and branches by which TensorFlow may take them apart into jumps.
LOWERED = "_lower_using_switch_merge"
# The operation that calls a function without a state; and what marks such functions until they are inlined.
_STATELESS, _CALLED = "PartitionedCall", "_called"
_imports = itertools.count()
# The name of a function, and the number that TensorFlow has given to it.
_COUNTER = re.compile(r"(.*)_(\d+)")
# Nodes of a graph whose memory is worth the time of looking through all objects.
_LARGE = 2000


@dataclasses.dataclass(frozen=True)
class TracedGraph:
    """The graph of a signature.

    Args:
        graph_def: `GraphDef` with the shapes of all tensors. Inputs and weights are placeholders.
        outlined: the same `GraphDef`, in which repeated layers and native ones are calls of functions; see
            `repeated_layers` and `native_functions`.
        inputs: names of the inputs; their nodes have these names.
        outputs: dict of the name of each output to its tensor, `"node:index"`.
        weights: names of the weights that are read, as in `weight_labels`; their nodes have these names.
        captures: dict of the name of a placeholder to the tensor of a resource, such as a table or a variable that is not
            one of the model's, which feeds it.
        variables: the `tf.Variable`s among these.
    """

    graph_def: GraphDef
    outlined: GraphDef
    inputs: tuple[str, ...]
    outputs: dict[str, str]
    weights: tuple[str, ...] = ()
    captures: dict[str, Tensor] = dataclasses.field(default_factory=dict[str, Tensor])
    variables: tuple[tf.Variable, ...] = ()

    def imported(self, tensors: Mapping[str, Tensor], is_outlined: bool = False) -> dict[str, Tensor]:
        """The outputs as tensors of the graph that is being traced.

        Args:
            tensors: dict of the name of a node to the tensor that takes its place: all inputs and weights.
            is_outlined: bool. Whether repeated layers stay calls of functions.
        """
        graph: tf.Graph = tf.compat.v1.get_default_graph()
        for each in self.variables:
            graph.watch_variable(each)  # As a function does that reads it.
        given = {**tensors, **{node: graph.capture(outer) for node, outer in self.captures.items()}}
        graph_def = with_own_functions(self.outlined if is_outlined else self.graph_def, str(next(_imports)))
        kept = [node for node in graph_def.node if node.name not in given]
        del graph_def.node[:]
        graph_def.node.extend(kept)
        read = {node_name(source) for node in graph_def.node for source in node.input}
        mapping = {f"{name}:0": tensor for name, tensor in given.items() if name in read}
        results = tf.graph_util.import_graph_def(graph_def, mapping, list(self.outputs.values()), name="")
        return {key: tf.identity(each, name=key) for key, each in zip(self.outputs, results, strict=True)}


def with_own_functions(graph_def: GraphDef, suffix: str) -> GraphDef:
    """A copy of a `GraphDef` whose functions have names of their own.

    TensorFlow refuses a function that differs, by an attribute, from one of the same name.

    Args:
        graph_def: `GraphDef`.
        suffix: of the names.
    """
    return _with_function_names(graph_def, lambda name: f"{name}_{suffix}")


def with_numbered_functions(graph_def: GraphDef) -> GraphDef:
    """A copy of a `GraphDef` whose functions are numbered from 0, not by a counter of the process.

    Args:
        graph_def: `GraphDef`.
    """
    parts = {each.signature.name: _COUNTER.fullmatch(each.signature.name) for each in graph_def.library.function}
    order = sorted(parts, key=lambda name: (found[1], int(found[2])) if (found := parts[name]) else (name, -1))
    names = {name: f"{found[1]}_{number}" if (found := parts[name]) else name for number, name in enumerate(order)}
    return _with_function_names(graph_def, lambda name: names[name])


def _with_function_names(graph_def: GraphDef, rename: Callable[[str], str]) -> GraphDef:
    copy: GraphDef = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    names = {each.signature.name: rename(each.signature.name) for each in copy.library.function}
    for each in copy.library.function:
        each.signature.name = names[each.signature.name]
    del copy.library.gradient[:]
    for node in every_node(copy):
        node.attr.pop(_GRADIENT, None)
        node.op = names.get(node.op, node.op)
        for attribute in node.attr.values():
            called = [attribute.func] if attribute.WhichOneof("value") == "func" else attribute.list.func
            for each in called:
                each.name = names.get(each.name, each.name)
    return copy


def trace(
    name: str, signature: Signature, variables: Sequence[keras.Variable], repeated: RepeatedLayers
) -> TracedGraph:
    """Traces a signature; its `outputs` are filled in.

    Args:
        name: of the signature.
        signature: `Signature`.
        variables: the Keras variables that its function reads, which become further inputs.
        repeated: `RepeatedLayers`, each traced once.
    """
    try:
        function = concrete_function(name, signature, variables, repeated)
    except library_exceptions():
        # Somebody keeps what the layers compute within, such as attention scores: it is of each call.
        if not repeated.has_any:
            raise
        function = concrete_function(name, signature, variables, RepeatedLayers(()))
    signature.outputs = tuple(_output_spec(signature, key, value) for key, value in function.structured_outputs.items())
    graph = graph_of(function)
    del function
    if len(graph.graph_def.node) > _LARGE:
        gc.collect()  # A graph in memory is a circle of many small objects, and would stay until Python looks for it.
    return graph


def concrete_function(
    name: str, signature: Signature, variables: Sequence[keras.Variable], repeated: RepeatedLayers
) -> ConcreteFunction:
    """The concrete function of a signature, whose weights are further arguments; as of `trace`."""

    def traced(**tensors: Tensor) -> dict[str, Tensor]:
        weights = [tensors.pop(label) for label in weight_labels(variables)]
        scope = keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True)))
        with scope, repeated.traced_once(scope):
            outputs = signature.function(tensors)
        # The identity makes a separate tensor of an output that is an input, or that is returned twice.
        return {key: tf.identity(value, name=key) for key, value in outputs.items()}

    traced.__name__ = name
    arguments = arguments_of(signature)
    for label, variable in zip(weight_labels(variables), variables, strict=True):
        arguments[label] = tf.TensorSpec(variable.shape, variable.dtype, label)
    return tf.function(traced, autograph=False, jit_compile=False).get_concrete_function(**arguments)


def graph_of(function: ConcreteFunction) -> TracedGraph:
    """A function that `concrete_function` has made as a `TracedGraph`."""
    captured = {id(inner) for _, inner in function.graph.captures}
    arguments = {each.op.name: each for each in function.inputs if id(each) not in captured}
    read = [name for name, each in arguments.items() if name.startswith(VARIABLE) and each.consumers()]
    outlined = _without_calls(function.graph.as_graph_def(add_shapes=True))
    captures = {inner.op.name: outer for outer, inner in function.graph.captures}
    values = {name: outer for name, outer in captures.items() if outer.dtype not in (tf.resource, tf.variant)}
    _make_constants(outlined, values)
    return TracedGraph(
        without_layers(outlined),
        outlined,
        tuple(name for name in arguments if not name.startswith(VARIABLE)),
        {key: tensor.name for key, tensor in function.structured_outputs.items()},
        tuple(read),
        {name: outer for name, outer in captures.items() if name not in values},
        tuple(function.graph.variables),
    )


def _without_calls(graph_def: GraphDef) -> GraphDef:
    """A graph with the operations of functions without a state in place of their calls, but for those of layers.

    Keras's grouped convolution is such a function, which XLA compiles; converters leave its call as it is.
    """
    while leaves := _leaves(graph_def):
        graph_def = inlined(_marked(graph_def, leaves), _CALLED)
    return graph_def


def _marked(graph_def: GraphDef, names: set[str]) -> GraphDef:
    return _with_function_names(graph_def, lambda name: name + _CALLED if name in names else name)


def _leaves(graph_def: GraphDef) -> set[str]:
    """The functions without a state that are called and call no other one."""
    library = {each.signature.name: each for each in graph_def.library.function}
    bodies = {name: set(_called(each.node_def)) for name, each in library.items()}
    called = set(_called(graph_def.node)).union(*bodies.values())
    return {name for name in called if not bodies[name]}


def _called(nodes: Iterable[NodeDef]) -> Iterator[str]:
    for node in nodes:
        if node.op == _STATELESS and not is_layer(node):
            yield node.attr["f"].func.name


def _make_constants(graph_def: GraphDef, values: Mapping[str, tf.Tensor]) -> None:
    """Puts values that a function captures into its graph, such as the mean of `keras.layers.Normalization`."""
    for node in graph_def.node:
        if node.name in values:
            value = values[node.name]
            shapes = node.attr["_output_shapes"]
            constant: NodeDef = tf.compat.v1.NodeDef(name=node.name, op="Const")
            constant.attr["dtype"].type = value.dtype.as_datatype_enum
            constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value.numpy(), value.dtype))
            constant.attr["_output_shapes"].CopyFrom(shapes)
            node.CopyFrom(constant)


def arguments_of(signature: Signature) -> dict[str, tf.TensorSpec]:
    """The inputs of a signature as arguments of a `tf.function`."""
    return {spec.name: tf.TensorSpec(spec.shape, spec.dtype, spec.name) for spec in signature.inputs}


def weight_labels(variables: Sequence[keras.Variable]) -> list[str]:
    """Names of the inputs of a graph for weights, in the order of the variables."""
    return [f"{VARIABLE}{number}" for number in range(len(variables))]


def _output_spec(signature: Signature, name: str, tensor: Tensor) -> ArraySpec:
    probes = [
        (
            sizes_of(signature.inputs, probe.inputs) | numbers_of(signature.inputs, probe.inputs),
            probe.outputs[name].shape,
        )
        for probe in signature.probes
    ]
    shape = (None,) * len(probes[0][1]) if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return ArraySpec(name, tensor.dtype.name, shape, output_axes(name, shape, probes), signature.labels.get(name))
