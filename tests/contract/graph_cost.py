"""What a traced TensorFlow graph costs, counted without running it: its largest tensor, its operations, its nodes.

All shapes are known, so each node's cost is: a product counts a multiplication and an addition for each term, any
other node one for each element that it writes, or reads if it reduces; what only looks at its input anew counts
nothing. Bodies of functions and loops are followed, loops as often as they run. What a loop keeps of each of its
rounds, as it does for its gradient, counts as one tensor. Nothing is guessed: an unknown shape or an unknown number
of rounds raises `UnknownCostError`.
"""

import dataclasses
import math

import tensorflow as tf

from keras_transformer.planning.errors import UnknownCostError
from keras_transformer.planning.multiply_adds import multiply_adds
from keras_transformer.planning.nodes import ancestors, function_graph
from keras_transformer.planning.trip_counts import LOOPS, StaticValues

_VIEWS = {
    *("Const", "Placeholder", "ReadVariableOp", "VariableShape", "NoOp", "Identity", "IdentityN", "StopGradient"),
    *("PreventGradient", "Reshape", "ExpandDims", "Squeeze", "Shape", "ShapeN", "Size", "Rank", "EmptyTensorList"),
    *("TensorListReserve", "TensorListFromTensor", "TensorListStack", "TensorListGetItem", "TensorListPopBack"),
    *("TensorListSetItem", "TensorListPushBack", "TensorListLength", "TensorListElementShape"),
}
_REDUCTIONS = {"Sum", "Mean", "Max", "Min", "Prod", "Any", "All", "ArgMax", "ArgMin", "BiasAddGrad", "L2Loss"}
# What gives no more than it is fed: its shape need not be known.
_SMALLER = {*_REDUCTIONS, "BroadcastGradientArgs"}
_KEEPING = {"TensorListPushBack": 1, "TensorListSetItem": 2}  # Which input is kept.
_MAX_ROUNDS_OF_LOOPS = 200
_CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall"])
_BRANCHES = frozenset(["If", "StatelessIf", "Case", "StatelessCase"])


@dataclasses.dataclass
class Cost:
    """What a graph costs.

    Attributes:
        largest: int. Elements of its largest tensor.
        where: str. The node that makes it.
        flops: int. Its operations; None where they cannot be counted.
        nodes: int. Its nodes, each counted once, however often a loop runs it.
    """

    largest: int = 0
    where: str = ""
    flops: int | None = 0
    nodes: int = 0

    def see(self, elements, where):
        if elements > self.largest:
            self.largest, self.where = elements, where


def layer_costs(layer, shape, **options):
    """What self-attention costs.

    Args:
        layer: a mixer.
        shape: tuple of ints `(B, T, D)`.
        **options: call arguments of the layer.

    Returns:
        dict of "forward" and "gradient" to `Cost`. The gradient is that of all weights and the input, its forward pass
        included.
    """
    if not layer.built:
        layer.build(shape, shape)

    def forward(x):
        return layer(x, x, **options)

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            # Not the sum: its gradient is the same for all tokens, so that a graph could be simplified by it.
            loss = tf.reduce_sum(tf.square(output := forward(x)))
        return output, tape.gradient(loss, [x, *(weight.value for weight in layer.trainable_weights)])

    graph = _trace(gradient, shape)
    costs = {"gradient": _cost(graph, graph.outputs[1:])}
    if any(node.type in LOOPS for node in _needed(graph)):
        # Loops of the forward pass keep nothing unless there is a gradient to come.
        return {**costs, "forward": traced_cost(forward, shape)}
    return {**costs, "forward": _cost(graph, graph.outputs[:1])}


def traced_cost(function, *shapes):
    """The `Cost` of a function of float32 tensors of these shapes."""
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
    """The nodes that the outputs of a graph depend on: the others are never run."""
    outputs = graph.outputs if outputs is None else outputs
    return ancestors([*(tensor.op for tensor in outputs), *graph.control_outputs])


def _add_loop(cost, loop, graph, times, values, is_new):
    body = function_graph(graph, loop.get_attr("body"))
    if not any(node.type in LOOPS for node in _needed(body)):
        rounds = sum(1 for _ in values.iterations(loop))
        _add_graph(cost, body, times * rounds, values, is_new)
        return
    # How long a loop within runs may differ from round to round.
    within = Cost()
    for rounds, each in enumerate(values.iterations(loop)):
        if rounds == _MAX_ROUNDS_OF_LOOPS:
            raise UnknownCostError(
                f"{loop.name} runs loops for more than {rounds} rounds: give larger blocks in `Growth`."
            )
        _add_graph(within, body, times, each, is_new and rounds == 0)
    cost.see(within.largest, within.where)
    for node in _needed(body):
        if node.type in _KEEPING:
            cost.see((rounds + 1) * times * _elements(node.inputs[_KEEPING[node.type]]), node.name)
    cost.flops += within.flops
    cost.nodes += within.nodes


def _inner_graphs(node, graph):
    """The functions that a node calls."""
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
