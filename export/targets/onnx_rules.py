"""Static rules of accelerators that take ONNX files: the nodes that one refuses, as far as the file alone tells."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from keras_transformer.export.targets.target import Node
from keras_transformer.utils.errors import library_exceptions

if TYPE_CHECKING:
    import onnx

_DYNAMIC = ("dynamic shapes", "give the size of every axis in static")


def load_graph(path: pathlib.Path) -> onnx.GraphProto:
    """The graph of a file, with the shapes of its tensors as far as they can be inferred."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except library_exceptions():  # What is not known is not refused.
        return model.graph


def count_nodes(path: pathlib.Path) -> int:
    """Number of nodes of a file, without constants."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    return sum(node.op_type != "Constant" for node in graph.node)


def onnx_problems(
    graph: onnx.GraphProto, operators: Collection[str], most_rank: int, remedies: dict[str, str] | None = None
) -> Iterator[Node]:
    """The nodes of a graph that an accelerator refuses, each with the first reason.

    Args:
        graph: `GraphProto` with shapes.
        operators: names of the operators that the accelerator has.
        most_rank: the highest rank of a tensor.
        remedies: dict of operator to what to use instead.
    """
    shapes = _shapes(graph)
    for node in graph.node:
        if node.op_type == "Constant":
            continue
        known = [shapes[each] for each in (*node.input, *node.output) if each in shapes]
        rank = max((len(shape) for shape in known), default=0)
        remedy = (remedies or {}).get(node.op_type, "")
        if any(None in shape for shape in known):
            yield Node(node.op_type, node.name, *_DYNAMIC)
        elif node.domain not in ("", "ai.onnx", "com.microsoft") or node.op_type not in operators:
            yield Node(node.op_type, node.name, "operation not supported", remedy)
        elif rank > most_rank:
            yield Node(
                node.op_type, node.name, f"tensors of rank {rank}", "use a mechanism that keeps tensors at rank 4"
            )
        elif node.op_type == "GatherND" and _attribute(node, "batch_dims"):
            yield Node(node.op_type, node.name, "a lookup in each row by its own indices", remedy)


def _shapes(graph: onnx.GraphProto) -> dict[str, tuple[int | None, ...]]:
    """Dict of tensor to its shape; None where a size has a name or is unknown."""
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            sizes = value.type.tensor_type.shape.dim
            found[value.name] = tuple(each.dim_value if each.HasField("dim_value") else None for each in sizes)
    return found


def _attribute(node: onnx.NodeProto, name: str) -> int:
    return next((each.i for each in node.attribute if each.name == name), 0)
