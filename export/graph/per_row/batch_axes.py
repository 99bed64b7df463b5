"""The axes of the tensors of a traced function along which the rows of the batch stand, found by running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from keras_transformer.export.graph.traced_graph import TracedGraph

# Numbers of rows, and of what other axes have: no sums or products of a few of them are equal.
_ROWS = (5, 7)
_SIZES = (3, 11, 13, 17, 19)
# The rows stand along several axes, or along one with something else.
MIXED = -1


def batch_axes(
    graph: TracedGraph,
    variables: Mapping[str, keras.Variable],
    specs: Mapping[str, tf.TensorSpec],
    sizes: Mapping[str, int],
) -> dict[str, int]:
    """The axis of rows of each tensor that has one.

    Args:
        graph: `TracedGraph`.
        variables: dict of the name of the placeholder of a weight to the variable.
        specs: dict of the name of an input to its `tf.TensorSpec`. The first axis is that of rows, if it is dynamic.
        sizes: dict of the name of an input to the size of its other dynamic axes.

    Returns:
        dict of `"node:index"`, or `"node"` for the first result, to an axis, or to `MIXED`.
    """
    nodes = [node for node in graph.graph_def.node if _has_shapes(node)]
    names = [f"{node.name}:{index}" for node in nodes for index in range(len(node.attr["_output_shapes"].list.shape))]
    fewer, more = (_shapes(graph, names, variables, _inputs(specs, sizes, rows)) for rows in _ROWS)
    found: dict[str, int] = {}
    for name, one, other in zip(names, fewer, more, strict=True):
        axis = _axis(one, other)
        if axis is not None:
            found[name] = axis
            if name.endswith(":0"):
                found[name[:-2]] = axis
    return found


def _has_shapes(node: NodeDef) -> bool:
    """Whether a node computes numbers."""
    numeric = {tf.resource.as_datatype_enum, tf.variant.as_datatype_enum}
    types = {node.attr[key].type for key in ("dtype", "T", "DstT") if key in node.attr}
    return node.op not in ("NoOp", "Assert", "VarHandleOp") and not types & numeric


def _inputs(specs: Mapping[str, tf.TensorSpec], sizes: Mapping[str, int], rows: int) -> dict[str, Tensor]:
    """Zeros of so many rows."""
    arrays: dict[str, Tensor] = {}
    for name, spec in specs.items():
        shape = [sizes[name] if size is None else size for size in spec.shape]
        if shape and spec.shape[0] is None:
            shape[0] = rows
        arrays[name] = tf.zeros(shape, spec.dtype)
    return arrays


def _shapes(
    graph: TracedGraph, names: Sequence[str], variables: Mapping[str, keras.Variable], inputs: Mapping[str, Tensor]
) -> list[np.ndarray]:
    """The shapes of tensors. Those of results do not depend on the values of weights, which are zeros here."""

    def called() -> list[Tensor]:
        weights = {name: tf.zeros(variables[name].shape, variables[name].dtype) for name in graph.weights}
        given = {f"{name}:0": tf.identity(tensor) for name, tensor in {**inputs, **weights}.items()}
        graph_def = graph.graph_def
        kept = tf.compat.v1.GraphDef(library=graph_def.library, versions=graph_def.versions)
        kept.node.extend(node for node in graph_def.node if f"{node.name}:0" not in given)
        computed = [name for name in names if name not in given]
        read = {source.split(":")[0].lstrip("^") for node in kept.node for source in node.input}
        mapping = {name: tensor for name, tensor in given.items() if name[:-2] in read}
        results = tf.graph_util.import_graph_def(kept, mapping, computed, name="")
        shapes: dict[str, Tensor] = {name: tf.shape(each) for name, each in zip(computed, results, strict=True)}
        return [shapes[name] if name in shapes else tf.shape(given[name]) for name in names]

    return [np.asarray(each) for each in tf.function(called, autograph=False).get_concrete_function()()]


def _axis(one: np.ndarray, other: np.ndarray) -> int | None:
    """The axis of rows of a tensor by its shapes for two numbers of them; None where it has none."""
    different = np.flatnonzero(one != other)
    if not different.size:
        return None
    axis = int(different[0])
    is_plain = different.size == 1 and (one[axis], other[axis]) == _ROWS
    return axis if is_plain else MIXED
