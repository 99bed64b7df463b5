"""Cost of a traced TensorFlow graph, counted without running it: its largest tensor, operations and nodes.

All shapes are static. A matrix product counts one multiplication and one addition per term, a reduction one operation
per input element, any other node one per output element; views count zero. Functions and loops are followed, loops
once per iteration. The values that a loop stores for its gradient count as one tensor. An unknown shape or trip count
raises `UnknownCostError`.
"""

import dataclasses
import math

import tensorflow as tf

from keras_transformer.planning.errors import UnknownCostError
from keras_transformer.planning.graph.multiply_adds import multiply_adds
from keras_transformer.planning.graph.nodes import ancestors, function_graph
from keras_transformer.planning.graph.trip_counts import LOOPS, StaticValues

_VIEWS = {
    *("Const", "Placeholder", "ReadVariableOp", "VariableShape", "NoOp", "Identity", "IdentityN", "StopGradient"),
    *("PreventGradient", "Reshape", "ExpandDims", "Squeeze", "Shape", "ShapeN", "Size", "Rank", "EmptyTensorList"),
    *("TensorListReserve", "TensorListFromTensor", "TensorListStack", "TensorListGetItem", "TensorListPopBack"),
    *("TensorListSetItem", "TensorListPushBack", "TensorListLength", "TensorListElementShape"),
}
_REDUCTIONS = {"Sum", "Mean", "Max", "Min", "Prod", "Any", "All", "ArgMax", "ArgMin", "BiasAddGrad", "L2Loss"}
# Operations with outputs no larger than their inputs, so that their shapes may be unknown.
_SMALLER = {*_REDUCTIONS, "BroadcastGradientArgs"}
_KEEPING = {"TensorListPushBack": 1, "TensorListSetItem": 2}  # Index of the stored input.
_MAX_ROUNDS_OF_LOOPS = 200
_CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall"])
_BRANCHES = frozenset(["If", "StatelessIf", "Case", "StatelessCase"])


@dataclasses.dataclass
class Cost:
    """Cost of a graph.

    Attributes:
        largest: int. Number of elements of the largest tensor.
        where: str. Name of the node that computes it.
        flops: int. Number of operations; None if it cannot be counted.
        nodes: int. Number of nodes, each counted once, also in loops.
    """

    largest: int = 0
    where: str = ""
    flops: int | None = 0
    nodes: int = 0

    def see(self, elements, where):
        if elements > self.largest:
            self.largest, self.where = elements, where


def layer_costs(layer, shape, **options):
    """Returns the cost of self-attention.

    Args:
        layer: a mixer.
        shape: tuple of ints `(B, T, D)`.
        **options: call arguments of the layer.

    Returns:
        dict of "forward" and "gradient" to `Cost`. The gradient is that of all weights and the input, and includes the
        forward pass.
    """
    if not layer.built:
        layer.build(shape, shape)

    def forward(x):
        return layer(x, x, **options)

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            # Not the sum: its gradient is the same for all tokens, which would simplify the graph.
            loss = tf.reduce_sum(tf.square(output := forward(x)))
        return output, tape.gradient(loss, [x, *(weight.value for weight in layer.trainable_weights)])

    graph = _trace(gradient, shape)
    costs = {"gradient": _cost(graph, graph.outputs[1:])}
    if any(node.type in LOOPS for node in _needed(graph)):
        # Loops of the forward pass store values only for a gradient.
        return {**costs, "forward": traced_cost(forward, shape)}
    return {**costs, "forward": _cost(graph, graph.outputs[:1])}


def traced_cost(function, *shapes):
    """Returns the `Cost` of a function of float32 tensors of these shapes."""
    return _cost(_trace(function, *shapes))


def _trace(function, *shapes):
    traced = tf.function(function, autograph=False, jit_compile=False)
    return traced.get_concrete_function(*(tf.TensorSpec(shape, "float32") for shape in shapes)).graph


def _cost(graph, outputs=None):
    cost = Cost()
    _add_nodes(cost, _needed(graph, outputs), graph, 1, StaticValues(graph))
    return cost


def _add_graph(cost, graph, times, values, is_new=True):
    _add_nodes(cost, _needed(graph), graph, times, values, is_new)


def _add_nodes(cost, nodes, graph, times, values, is_new=True):
    for node in nodes:
        cost.nodes += is_new
        if node.type in LOOPS:
            _add_loop(cost, node, graph, times, values, is_new)
            continue
        inner = _inner_graphs(node, graph)
        for each in inner:
            _add_graph(cost, each, times, values.callee(node, each), is_new)
        if inner:
            continue
        if node.type not in _SMALLER:
            for tensor in node.outputs:
                cost.see(_elements(tensor), node.name)
        if node.type in _KEEPING:
            cost.see(times * _elements(node.inputs[_KEEPING[node.type]]), node.name)
        cost.flops += times * _flops(node)


def _needed(graph, outputs=None):
    """Returns the nodes that the outputs of a graph depend on; the others do not run."""
    outputs = graph.outputs if outputs is None else outputs
    return ancestors([*(tensor.op for tensor in outputs), *graph.control_outputs])


def _add_loop(cost, loop, graph, times, values, is_new):
    body = function_graph(graph, loop.get_attr("body"))
    if not any(node.type in LOOPS for node in _needed(body)):
        rounds = sum(1 for _ in values.iterations(loop))
        _add_graph(cost, body, times * rounds, values, is_new)
        return
    # The trip count of an inner loop may differ between iterations.
    within = Cost()
    for rounds, each in enumerate(values.iterations(loop)):
        if rounds == _MAX_ROUNDS_OF_LOOPS:
            raise UnknownCostError(
                f"{loop.name} runs inner loops for more than {rounds} iterations: set larger blocks in `Growth`."
            )
        _add_graph(within, body, times, each, is_new and rounds == 0)
    cost.see(within.largest, within.where)
    for node in _needed(body):
        if node.type in _KEEPING:
            cost.see((rounds + 1) * times * _elements(node.inputs[_KEEPING[node.type]]), node.name)
    cost.flops += within.flops
    cost.nodes += within.nodes


def _inner_graphs(node, graph):
    """Returns the functions that a node calls."""
    if node.type in _CALLS:
        return [function_graph(graph, node.get_attr("f"))]
    if node.type in ("If", "StatelessIf"):
        return [function_graph(graph, node.get_attr(name)) for name in ("then_branch", "else_branch")]
    if node.type in _BRANCHES:
        return [function_graph(graph, branch) for branch in node.get_attr("branches")]
    return []


def _elements(tensor):
    elements = tensor.shape.num_elements()
    if elements is None:
        raise UnknownCostError(f"The shape of {tensor.name} ({tensor.op.type}) is not known: {tensor.shape}")
    return elements


def _flops(node):
    if node.type in _VIEWS:
        return 0
    if node.type in _SMALLER:
        return _elements(node.inputs[0])
    written = sum(_elements(tensor) for tensor in node.outputs)
    if node.type in ("TopKV2", "TopK"):
        return _elements(node.inputs[0]) * max(1, math.ceil(math.log2(node.inputs[0].shape[-1])))
    return 2 * multiply_adds(node) or written
