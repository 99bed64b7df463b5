"""The operators of TensorFlow Lite for Microcontrollers, and the methods by which C++ registers them."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from keras_transformer.export.targets.target import Node
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import indices, read_file, signature_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

# The methods of `MicroMutableOpResolver` without "Add". The interpreter of tflite-micro 0.dev20261023 has all of them.
_METHODS_TEXT = """
Abs Add AddN ArgMax ArgMin AssignVariable AveragePool2D BatchMatMul BatchToSpaceNd BroadcastArgs BroadcastTo CallOnce
Cast Ceil Concatenation Conv2D Cos CumSum DepthToSpace DepthwiseConv2D Dequantize Div DynamicUpdateSlice Elu
EmbeddingLookup Equal Exp ExpandDims Fill Floor FloorDiv FloorMod FullyConnected Gather GatherNd Greater GreaterEqual
HardSwish If L2Normalization L2Pool2D LeakyRelu Less LessEqual Log LogSoftmax LogicalAnd LogicalNot LogicalOr Logistic
MaxPool2D Maximum Mean Minimum MirrorPad Mul Neg NotEqual Pack Pad PadV2 Prelu Quantize ReadVariable ReduceAll
ReduceMax ReduceMin Relu Relu6 Reshape ResizeBilinear ResizeNearestNeighbor ReverseV2 Round Rsqrt SelectV2 Shape Sin
Slice Softmax SpaceToBatchNd SpaceToDepth Split SplitV Sqrt Square SquaredDifference Squeeze StridedSlice Sub Sum Svdf
Tanh Transpose TransposeConv UnidirectionalSequenceLSTM Unpack VarHandle While ZerosLike
"""
_METHODS = {name.upper(): name for name in _METHODS_TEXT.split()}
_OF_DYNAMIC = (
    "give the size of every axis in static; a recurrent layer that returns its sequence, or has a mask, needs "
    "unroll=True"
)
_REMEDIES = {
    "CONV_3D": "use convolutions of two axes",
    "GELU": "quantize with FullInt8, or use activation='relu' or 'hard_silu'",
    "ONE_HOT": "take one-hot rows as an input",
    "POW": "multiply, or use keras.ops.square and sqrt",
    "REDUCE_PROD": "multiply slices",
    "SCATTER_ND": "use a mechanism that does not scatter",
    "SELECT": "use keras.ops.where of tensors of one rank",
    "TILE": "use keras.ops.broadcast_to or concatenate",
    "TOPK_V2": "return all scores, and choose among them in C++",
}


def method_of(kind: str) -> str | None:
    """The method of `MicroMutableOpResolver` that registers an operator, or None.

    Example:

    >>> method_of("CONV_2D"), method_of("GELU")
    ('AddConv2D', None)
    """
    name = _METHODS.get(kind.replace("_", ""))
    return None if name is None else f"Add{name}"


def refused_nodes(path: pathlib.Path) -> list[Node]:
    """The nodes of a file that TensorFlow Lite for Microcontrollers does not have, or whose shapes are dynamic."""
    return list(_problems(read_file(path)))


def node_of(graph: Graph, operator: OperatorT, reason: str, remedy: str = "") -> Node:
    """The `Node` of an operator, named after its first output."""
    name = graph.name(int(operator.outputs[0])).split(";")[0] if len(operator.outputs) else ""
    return Node(graph.kind(operator), name, reason, remedy)


def _problems(model: ModelT) -> Iterator[Node]:
    for graph in graphs(model):
        for operator in graph.subgraph.operators:
            kind = graph.kind(operator)
            tensors = [each for each in (*indices(operator.inputs), *indices(operator.outputs)) if each >= 0]
            if method_of(kind) is None:
                yield node_of(graph, operator, "operation not supported", _REMEDIES.get(kind, ""))
            elif any(None in signature_of(graph.tensors[each]) for each in tensors):
                yield node_of(graph, operator, "dynamic shapes", _OF_DYNAMIC)
