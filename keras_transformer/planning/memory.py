"""Which tensors of a traced graph stand in memory at once."""

import tensorflow as tf

from keras_transformer.planning.products import elements

# What looks at its input anew, and has no memory of its own.
VIEWS = frozenset(
    ["Identity", "IdentityN", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "PreventGradient", "CheckNumerics"]
)
# What stands in memory anyway: weights and inputs.
GIVEN = frozenset(["Placeholder", "ReadVariableOp", "Const", "NoOp"])
# What computes each element by itself, and may write over an input that nobody reads after it.
ELEMENTWISE = frozenset(
    [
        *(
            "Abs",
            "Add",
            "AddV2",
            "AddN",
            "BiasAdd",
            "Cast",
            "Ceil",
            "Cos",
            "Div",
            "DivNoNan",
            "Elu",
            "EluGrad",
            "Equal",
        ),
        *(
            "Erf",
            "Erfc",
            "Exp",
            "Expm1",
            "Floor",
            "FloorDiv",
            "FloorMod",
            "Greater",
            "GreaterEqual",
            "Less",
            "LessEqual",
        ),
        *(
            "Log",
            "Log1p",
            "LogicalAnd",
            "LogicalNot",
            "LogicalOr",
            "Maximum",
            "Minimum",
            "Mul",
            "Neg",
            "NotEqual",
            "Pow",
        ),
        *("RealDiv", "Reciprocal", "Relu", "ReluGrad", "Round", "Rsqrt", "RsqrtGrad", "Select", "SelectV2", "Sigmoid"),
        *("SigmoidGrad", "Sign", "Sin", "Softplus", "SoftplusGrad", "Sqrt", "SqrtGrad", "Square", "SquaredDifference"),
        *("Sub", "Tanh", "TanhGrad", "Softmax", "LogSoftmax", "ZerosLike", "OnesLike"),
    ]
)


# What reads or gives shapes alone.
SHAPES = frozenset(["Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs", "StridedSlice", "Pack", "Prod"])
# What a loop keeps is referred to, and never copied.
LISTS = frozenset(["EmptyTensorList", "TensorListReserve", "TensorListPushBack", "TensorListPopBack"])
LISTS |= frozenset(["TensorListGetItem", "TensorListSetItem", "TensorListLength", "TensorListElementShape"])
_REDUCTIONS = frozenset(["Sum", "Mean", "Max", "Min"])
_PRODUCTS = ("MatMul", "BatchMatMul")


def is_view(node):
    """Whether a node looks at its input anew, and has no memory of its own."""
    return node.type in VIEWS or _is_read_crosswise(node)


def buffer_of(tensor):
    """The tensor whose buffer a tensor looks at."""
    while is_view(tensor.op):
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor


def _is_read_crosswise(node):
    """Whether a transposition of the last two axes is one that products alone read: they do without it."""
    if node.type != "Transpose":
        return False
    *before, second, last = range(node.inputs[0].shape.rank)
    if _order(node.inputs[1]) != [*before, last, second]:
        return False
    readers = _readers(node.outputs[0])
    return bool(readers) and all(each.type.startswith(_PRODUCTS) for each in readers)


def _order(axes):
    """The axes of a transposition, or None where they are computed; one that swaps two is its own inverse."""
    axes = axes.op.inputs[0] if axes.op.type == "InvertPermutation" else axes
    order = tf.get_static_value(axes)
    return None if order is None else list(order)


def _readers(tensor):
    """The nodes that read a tensor, behind those that give it the shape that it has."""
    found = []
    for reader in tensor.consumers():
        keeps_shape = reader.type == "Reshape" and reader.outputs[0].shape == tensor.shape
        found += _readers(reader.outputs[0]) if keeps_shape else [reader]
    return found


def size_of(tensor):
    """Bytes of a symbolic tensor.

    Raises:
        UnknownCostError: its shape is not known, nor need it be that of what it is made to.
    """
    if tensor.shape.num_elements() is None:
        if tensor.op.type in SHAPES:
            return 0
        if tensor.op.type in _REDUCTIONS:  # Of a gradient, over axes that another node names, to the shape of a weight.
            known = [reader.outputs[0] for reader in tensor.consumers() if reader.type == "Reshape"]
            known = [each for each in known if each.shape.num_elements() is not None]
            return size_of(known[0] if known else tensor.op.inputs[0])
    return elements(tensor) * max(tensor.dtype.size, 1)


class Lives:
    """When each buffer of a graph is made, and read for the last time, in the order in which its nodes were traced.

    Args:
        nodes: list of operations, in that order.
        kept: symbolic tensors that stay to the end.
        size_of: function of a symbolic tensor to its bytes.
        within: function of a node to the bytes that it takes while it runs, beyond what it reads and gives.
    """

    def __init__(self, nodes, kept=(), size_of=size_of, within=lambda node: 0):
        self.nodes = nodes
        self._size = size_of
        self._within = within
        self._last = {}
        for index, node in enumerate(nodes):
            for tensor in node.inputs:
                self._last[buffer_of(tensor).ref()] = index
        self._last.update((buffer_of(tensor).ref(), len(nodes)) for tensor in kept)

    def run(self, boundary=None):
        """Goes through the nodes.

        Args:
            boundary: int: before which node to look at what stands, such as the first of the backward pass; or None.

        Returns:
            `(peak, standing)`: bytes at the fullest moment, and at the boundary.
        """
        live, now, peak, standing = {}, 0, 0, 0
        ends = {}
        for buffer, index in self._last.items():
            ends.setdefault(index, []).append(buffer)
        for index, node in enumerate(self.nodes):
            if index == boundary:
                standing = now
            if not is_view(node) and node.type not in GIVEN:
                taken = self._overwritten(node, index, live)
                for output in node.outputs:
                    if output.ref() not in self._last:
                        continue
                    bytes_of = self._size(output)
                    if taken is not None and live[taken] == bytes_of:
                        now -= live.pop(taken)
                        taken = None
                    live[output.ref()] = bytes_of
                    now += bytes_of
                peak = max(peak, now + self._within(node))
            for buffer in ends.get(index, ()):
                now -= live.pop(buffer, 0)
        return peak, standing

    def _overwritten(self, node, index, live):
        """The input that a node may write over, or None."""
        if node.type not in ELEMENTWISE:
            return None
        found = (buffer_of(tensor).ref() for tensor in node.inputs)
        return next((buffer for buffer in found if buffer in live and self._last[buffer] == index), None)
