"""Handlers for TensorFlow ops that tf2onnx does not support, in opset 18.

A handler takes the graph of tf2onnx and the node to replace. `HANDLERS` is passed to tf2onnx.
"""

from typing import Any

import numpy as np
from onnx import TensorProto


def erfc(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """`erfc(x) = 1 - erf(x)`: the exact GELU."""
    source, result, shapes, dtypes = node.input[0], node.output[0], node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    one = _constant(graph, name, np.array(1, _numpy_dtype(graph, source)))
    erf = graph.make_node("Erf", [source], dtypes=dtypes, shapes=shapes)
    graph.make_node("Sub", [one, erf.output[0]], name=name, outputs=[result], dtypes=dtypes, shapes=shapes)


def dynamic_update_slice(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """`keras.ops.slice_update`: the update, padded to the full shape, where a padded block of ones is set.

    As in XLA, the start is clamped so that the update fits.
    """
    target, update, starts = node.input
    result, shapes, dtypes = node.output[0], node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    make = _NodeMaker(graph, name)
    full, part = make("Shape", target), make("Shape", update)
    most = make("Sub", full, part)
    begin = make("Max", make("Min", make("Cast", starts, to=TensorProto.INT64), most), make.constant([0], np.int64))
    pads = make("Concat", begin, make("Sub", most, begin), axis=0)
    zero = make.constant(0, _numpy_dtype(graph, target))
    ones = make("Expand", make.constant(1, np.int32), part)
    inside = make("Cast", make("Pad", ones, pads, make.constant(0, np.int32)), to=TensorProto.BOOL)
    padded = make("Pad", update, pads, zero)
    graph.make_node("Where", [inside, padded, target], name=name, outputs=[result], dtypes=dtypes, shapes=shapes)


def unsorted_segments(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """Sum or minimum of the elements of each segment, of vectors. Segment numbers must not be negative."""
    from tf2onnx.onnx_opset.reduction import SegmentSum

    source, segments, count = node.input
    result, shapes, dtypes = node.output[0], node.output_shapes, node.output_dtypes
    if graph.get_rank(source) != 1:
        SegmentSum.version_13(graph, node)
        return
    reduction = "min" if node.type.endswith("Min") else "add"
    dtype = _numpy_dtype(graph, source)
    first = np.zeros(1, dtype) if reduction == "add" else _largest(dtype)
    graph.remove_node(node.name)
    make = _NodeMaker(graph, name)
    shape = make("Reshape", make("Cast", count, to=TensorProto.INT64), make.constant([1], np.int64))
    empty = make("Expand", make.constant(first, dtype), shape)
    inputs = [empty, make("Cast", segments, to=TensorProto.INT64), source]
    graph.make_node(
        "ScatterElements",
        inputs,
        attr={"axis": 0, "reduction": reduction},
        name=name,
        outputs=[result],
        dtypes=dtypes,
        shapes=shapes,
    )


def _largest(dtype: Any) -> np.ndarray:
    kind = np.finfo if np.dtype(dtype).kind == "f" else np.iinfo
    return np.array([kind(dtype).max], dtype)


class _NodeMaker:
    """Adds intermediate nodes of a handler."""

    def __init__(self, graph: Any, name: str) -> None:
        self.graph = graph
        self.name = name

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.graph.make_node(op, list(inputs), attr=attributes, name=_unique(f"{self.name}/{op}")).output[0]

    def constant(self, value: Any, dtype: Any) -> str:
        return _constant(self.graph, self.name, np.array(value, dtype))


def _constant(graph: Any, name: str, array: np.ndarray) -> str:
    return graph.make_const(_unique(f"{name}/const"), array).output[0]


def _unique(name: str) -> str:
    from tf2onnx.utils import make_name

    return make_name(name)


def _numpy_dtype(graph: Any, tensor: str) -> Any:
    from tf2onnx.utils import map_onnx_to_numpy_type

    return map_onnx_to_numpy_type(graph.get_dtype(tensor))


HANDLERS: dict[str, tuple[Any, list[Any]]] = {
    "Erfc": (erfc, []),
    "XlaDynamicUpdateSlice": (dynamic_update_slice, []),
    "UnsortedSegmentMin": (unsorted_segments, []),
    "UnsortedSegmentSum": (unsorted_segments, []),
}
