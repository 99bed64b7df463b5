"""Liveness of the tensors of a traced graph: how many bytes are allocated at once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator

import tensorflow as tf

from keras_transformer.planning.graph.events import Event
from keras_transformer.planning.graph.multiply_adds import elements
from keras_transformer.planning.graph.trip_counts import LOOPS

# Operations whose output is a view of their input.
VIEWS = frozenset(
    ["Identity", "IdentityN", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "PreventGradient", "CheckNumerics"]
)
# Weights and inputs, which are in memory anyway.
PREALLOCATED = frozenset(["Placeholder", "ReadVariableOp", "Const", "NoOp"])
# Elementwise operations, which may overwrite an input that is not read afterwards.
_ELEMENTWISE = (
    "Abs Add AddV2 AddN BiasAdd Cast Ceil Cos Div DivNoNan Elu EluGrad Equal Erf Erfc Exp Expm1 Floor "
    "FloorDiv FloorMod Greater GreaterEqual Less LessEqual Log Log1p LogicalAnd LogicalNot LogicalOr "
    "Maximum Minimum Mul Neg NotEqual Pow RealDiv Reciprocal Relu ReluGrad Round Rsqrt RsqrtGrad Select "
    "SelectV2 Sigmoid SigmoidGrad Sign Sin Softplus SoftplusGrad Sqrt SqrtGrad Square SquaredDifference "
    "Sub Tanh TanhGrad Softmax LogSoftmax ZerosLike OnesLike"
)
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
# Others that may: a cross-entropy writes its gradient over the logits.
_IN_PLACE = ELEMENTWISE | frozenset(["SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"])
# Operations that compute functions by series.
FUNCTIONS = frozenset(
    "Erf Erfc Exp Expm1 Log Log1p Pow Sigmoid Sin Cos Softmax LogSoftmax Softplus Tanh Elu".split()  # noqa: SIM905
)

# Operations on shapes only.
SHAPE_OPS = frozenset(["Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs", "StridedSlice", "Pack", "Prod"])
# Operations on lists of tensors, which are references.
LIST_OPS = frozenset(["EmptyTensorList", "TensorListReserve", "TensorListPushBack", "TensorListPopBack"])
LIST_OPS |= frozenset(["TensorListGetItem", "TensorListSetItem", "TensorListLength", "TensorListElementShape"])
REDUCTIONS = frozenset(["Sum", "Mean", "Max", "Min"])
_PRODUCTS = ("MatMul", "BatchMatMul")
_FUSED_TRANSPOSES: weakref.WeakKeyDictionary[tf.Graph, bool] = weakref.WeakKeyDictionary()


def is_view(node: tf.Operation) -> bool:
    """Returns whether the output of a node is a view of its input, without separate memory."""
    return node.type in VIEWS or (node.type == "Transpose" and _is_fused_transpose(node))


def buffer_of(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor that owns the buffer of a tensor."""
    while is_view(tensor.op):
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor


def _is_fused_transpose(node: tf.Operation) -> bool:
    """Whether a node transposes the last two axes only for matrix products, which read the input transposed."""
    if node not in _FUSED_TRANSPOSES:
        _FUSED_TRANSPOSES[node] = _only_products_read(node)
    return _FUSED_TRANSPOSES[node]


def _only_products_read(node: tf.Operation) -> bool:
    *before, second, last = range(node.inputs[0].shape.rank)
    if _order(node.inputs[1]) != [*before, last, second]:
        return False
    readers = _readers(node.outputs[0])
    return bool(readers) and all(each.type.startswith(_PRODUCTS) for each in readers)


def _order(axes: tf.Tensor) -> list[int] | None:
    """Returns the permutation of a transpose, None if it is computed; one that swaps two axes is its own inverse."""
    axes = axes.op.inputs[0] if axes.op.type == "InvertPermutation" else axes
    order = tf.get_static_value(axes)
    return None if order is None else list(order)


def _readers(tensor: tf.Tensor) -> list[tf.Operation]:
    """Returns the nodes that read a tensor, directly or through reshapes to its own shape."""
    found = []
    for reader in tensor.consumers():
        keeps_shape = reader.type == "Reshape" and reader.outputs[0].shape == tensor.shape
        found += _readers(reader.outputs[0]) if keeps_shape else [reader]
    return found


def size_of(tensor: tf.Tensor) -> float:
    """Returns the bytes of a symbolic tensor.

    Raises:
        UnknownCostError: its shape is not known.
    """
    if tensor.shape.num_elements() is None:
        if tensor.op.type in SHAPE_OPS:
            return 0
        if tensor.op.type in REDUCTIONS:  # Of a gradient, over computed axes, to the shape of a weight.
            known = [reader.outputs[0] for reader in tensor.consumers() if reader.type == "Reshape"]
            known = [each for each in known if each.shape.num_elements() is not None]
            return size_of(known[0] if known else tensor.op.inputs[0])
    return elements(tensor) * max(tensor.dtype.size, 1)


class Liveness:
    """The allocation and the last use of each buffer of a graph, in the order in which its nodes were traced.

    Args:
        nodes: list of operations, in that order.
        outputs: symbolic tensors that stay allocated to the end.
        size_of: function of a symbolic tensor to its bytes.
        workspace: function of a node to the bytes that it allocates while it runs, beyond its inputs and outputs.
        stored: function of a symbolic tensor to the one in memory that is read in its place.
    """

    def __init__(
        self,
        nodes: list[tf.Operation],
        outputs: Iterable[tf.Tensor] = (),
        size_of: Callable[[tf.Tensor], float] = size_of,
        workspace: Callable[[tf.Operation], float] = lambda node: 0,
        stored: Callable[[tf.Tensor], tf.Tensor] = buffer_of,
    ) -> None:
        self.nodes = nodes
        self._stored = stored
        self._size = size_of
        self._workspace = workspace
        self._last: dict[Hashable, int] = {}
        for index, node in enumerate(nodes):
            for tensor in node.inputs:
                self._last[stored(tensor).ref()] = index
        self._last.update((buffer_of(tensor).ref(), len(nodes)) for tensor in outputs)

    def run(self) -> tuple[float, float]:
        """Returns the largest number of allocated bytes, and that after the last node."""
        now = peak = 0.0
        for event in self.events():
            now += event.allocated
            peak = max(peak, now + event.workspace)
            now -= event.freed
        return peak, now

    def events(self) -> Iterator[Event]:
        """Yields the `Event` of each node, without its operations."""
        live: dict[Hashable, float] = {}
        ends: dict[int, list[Hashable]] = {}
        for buffer, index in self._last.items():
            ends.setdefault(index, []).append(buffer)
        for index, node in enumerate(self.nodes):
            allocated = workspace = 0.0
            if not is_view(node) and node.type not in PREALLOCATED:
                allocated, workspace = self._allocate(node, index, live), self._workspace(node)
            freed = sum(live.pop(buffer, 0.0) for buffer in ends.get(index, ()))
            yield Event((), allocated, workspace, freed)

    def _allocate(self, node: tf.Operation, index: int, live: dict[Hashable, float]) -> float:
        """Adds the outputs of a node to `live`; returns their bytes, without those of an input that it overwrites."""
        allocated = 0.0
        for output in node.outputs:
            if output.ref() not in self._last:
                continue
            bytes_of = self._size(output)
            free = self._overwritten(output, index, live)
            taken = next((buffer for buffer in free if live[buffer] == bytes_of), None)
            if taken is not None:
                allocated -= live.pop(taken)
            live[output.ref()] = bytes_of
            allocated += bytes_of
        return allocated

    def _overwritten(self, output: tf.Tensor, index: int, live: dict[Hashable, float]) -> list[Hashable]:
        """Returns the buffers of inputs of which an output may overwrite one; that of a loop, its own initial value."""
        node = output.op
        inputs = node.inputs if node.type in _IN_PLACE else []
        if node.type in LOOPS:
            inputs = [node.inputs[output.value_index]]
        found = (self._stored(tensor).ref() for tensor in inputs)
        return [buffer for buffer in found if buffer in live and self._last[buffer] == index]
