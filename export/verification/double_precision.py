"""A graph in float64: how far its outputs in float32 are from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.graph.part import every_node
from keras_transformer.export.graph.traced_graph import TracedGraph
from keras_transformer.export.verification.graph_execution import GraphExecution
from keras_transformer.utils.errors import library_exceptions

if TYPE_CHECKING:
    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.graph_pb2 import GraphDef

_FLOAT, _DOUBLE = tf.float32.as_datatype_enum, tf.float64.as_datatype_enum
# Weights of more bytes are not copied.
_MOST_BYTES = 2**30


def outputs_in_double(graph: TracedGraph, tensors: Mapping[str, Any]) -> list[np.ndarray] | None:
    """The outputs of a graph whose operations compute in float64; None where one of them cannot.

    Args:
        graph: `TracedGraph`.
        tensors: dict of the name of a node to its tensor: all inputs and weights.
    """
    given = {name: tf.convert_to_tensor(each) for name, each in tensors.items()}
    floats = {name for name, each in given.items() if each.dtype == tf.float32}
    if sum(8 * given[name].shape.num_elements() for name in floats) > _MOST_BYTES:
        return None
    doubles = {name: tf.cast(given[name], tf.float64) for name in floats}
    try:
        results = GraphExecution(_in_double(graph.outlined))(given | doubles, list(graph.outputs.values()))
    except library_exceptions(NotImplementedError):
        return None
    return [each.numpy() for each in results]


def _in_double(graph_def: GraphDef) -> GraphDef:
    """A copy of a graph with float64 in place of float32."""
    copy: GraphDef = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    for function in copy.library.function:
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            argument.type = _doubled(argument.type)
    for node in every_node(copy):
        for attribute in node.attr.values():
            _double(attribute)
    return copy


def _double(attribute: AttrValue) -> None:
    kind = attribute.WhichOneof("value")
    if kind == "type":
        attribute.type = _doubled(attribute.type)
    elif kind == "list":
        types: Sequence[int] = [_doubled(each) for each in attribute.list.type]
        attribute.list.type[:] = types
    elif kind == "tensor" and attribute.tensor.dtype == _FLOAT:
        attribute.tensor.CopyFrom(tf.make_tensor_proto(tf.make_ndarray(attribute.tensor).astype("float64")))


def _doubled(dtype: int) -> int:
    return _DOUBLE if dtype == _FLOAT else dtype
