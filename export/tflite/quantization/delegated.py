"""Operators without a kernel of integers in XNNPACK, which runs TFLite files on CPUs, written with those that have one.

The others run one by one between the parts that XNNPACK takes, on a CPU without NEON with plain loops. Of a MobileNetV3 they
take most of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.tree import indices, read, schema, write

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT


def with_delegated_kernels(content: bytes) -> bytes:
    """A float file whose hard swishes are sums and products, `x · min(max(x + 3, 0), 6) / 6`.

    Args:
        content: bytes of a float .tflite file.

    Returns:
        The same bytes, if there are none.
    """
    model = read(content)
    count = sum(graph.replace_operators(_hard_swish) for graph in graphs(model))
    return write(model) if count else content


def _hard_swish(graph: Graph, operator: OperatorT) -> bool:
    if graph.kind(operator) != "HARD_SWISH":
        return False
    (x,), (result,) = indices(operator.inputs), indices(operator.outputs)
    add, multiply = schema().AddOptionsT(), schema().MulOptionsT()
    add.fusedActivationFunction = schema().ActivationFunctionType.RELU6
    sizes = graph.tensors[x].shapeSignature
    shape = [None if size < 0 else int(size) for size in (graph.tensors[x].shape if sizes is None else sizes)]
    numbers = [graph.constant(np.array(each, "float32"), "hard_swish") for each in (3.0, 1 / 6)]
    gates = [graph.add_tensor(f"{graph.name(result)}/gate_{each}", "FLOAT32", shape) for each in ("sum", "product")]
    graph.emit("ADD", (x, numbers[0]), gates[0], add)
    graph.emit("MUL", (gates[0], numbers[1]), gates[1], multiply)
    graph.emit("MUL", (x, gates[1]), result, multiply)
    return True
