"""Which tensors of a traced graph stand in memory at once."""

from keras_transformer.export.planning.products import elements

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
_REDUCTIONS = frozenset(["Sum", "Mean", "Max", "Min"])


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
    """

    def __init__(self, nodes, kept=(), size_of=size_of):
        self.nodes = nodes
        self._size = size_of
        self._root = {}
        self._last = {}
        for index, node in enumerate(nodes):
            for tensor in node.inputs:
                self._last[self._of(tensor)] = index
            if node.type in VIEWS:
                for output, source in zip(node.outputs, node.inputs, strict=False):
                    self._root[output.ref()] = self._of(source)
        self._last.update((self._of(tensor), len(nodes)) for tensor in kept)

    def _of(self, tensor):
        """The buffer that a tensor stands in, named by the tensor that it was made for."""
        return self._root.get(tensor.ref(), tensor.ref())

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
            if node.type not in VIEWS and node.type not in GIVEN:
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
                peak = max(peak, now)
            for buffer in ends.get(index, ()):
                now -= live.pop(buffer, 0)
        return peak, standing

    def _overwritten(self, node, index, live):
        """The input that a node may write over, or None."""
        if node.type not in ELEMENTWISE:
            return None
        found = (self._of(tensor) for tensor in node.inputs)
        return next((buffer for buffer in found if buffer in live and self._last[buffer] == index), None)
