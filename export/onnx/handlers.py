"""TensorFlow ops that tf2onnx does not know, written in ONNX (opset 18).

Each handler takes tf2onnx's graph and the node to replace; `HANDLERS` is what `tf2onnx` is given.
"""

import numpy as np
from onnx import TensorProto


def erfc(graph, node, name, arguments):
    """`erfc(x) = 1 - erf(x)`: the exact GELU."""
    source, result, shapes, dtypes = node.input[0], node.output[0], node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    one = _constant(graph, name, np.array(1, _numpy_dtype(graph, source)))
    erf = graph.make_node("Erf", [source], dtypes=dtypes, shapes=shapes)
    graph.make_node("Sub", [one, erf.output[0]], name=name, outputs=[result], dtypes=dtypes, shapes=shapes)


def dynamic_update_slice(graph, node, name, arguments):
    """`keras.ops.slice_update`: the update, padded to the full shape, wherever a padded block of ones is set.

    As in XLA, a start at which the update would stick out is moved back until it fits.
    """
    target, update, starts = node.input
    result, shapes, dtypes = node.output[0], node.output_shapes, node.output_dtypes
    graph.remove_node(node.name)
    make = _Maker(graph, name)
    full, part = make("Shape", target), make("Shape", update)
    room = make("Sub", full, part)
    begin = make("Max", make("Min", make("Cast", starts, to=TensorProto.INT64), room), make.constant([0], np.int64))
    pads = make("Concat", begin, make("Sub", room, begin), axis=0)
    zero = make.constant(0, _numpy_dtype(graph, target))
    ones = make("Expand", make.constant(1, np.int32), part)
    inside = make("Cast", make("Pad", ones, pads, make.constant(0, np.int32)), to=TensorProto.BOOL)
    padded = make("Pad", update, pads, zero)
    graph.make_node("Where", [inside, padded, target], name=name, outputs=[result], dtypes=dtypes, shapes=shapes)


class _Maker:
    """Makes intermediate nodes of a handler."""

    def __init__(self, graph, name):
        self.graph = graph
        self.name = name

    def __call__(self, op, *inputs, **attributes):
        return self.graph.make_node(op, list(inputs), attr=attributes, name=_unique(f"{self.name}/{op}")).output[0]

    def constant(self, value, dtype):
        return _constant(self.graph, self.name, np.array(value, dtype))


def _constant(graph, name, array):
    return graph.make_const(_unique(f"{name}/const"), array).output[0]


def _unique(name):
    from tf2onnx.utils import make_name

    return make_name(name)


def _numpy_dtype(graph, tensor):
    from tf2onnx.utils import map_onnx_to_numpy_type

    return map_onnx_to_numpy_type(graph.get_dtype(tensor))


HANDLERS = {
    "Erfc": (erfc, []),
    "XlaDynamicUpdateSlice": (dynamic_update_slice, []),
}
