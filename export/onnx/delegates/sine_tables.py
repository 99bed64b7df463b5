"""Sines and cosines that are known when the file is written, as constants or as lookups in a table.

Accelerators compute sines with few correct digits: WGSL promises an error of 2**-11 between -pi and pi, and nothing
outside, and in 16 bits an angle of 500 has a step of 0.25. The angles of rotary positions depend on the index of a slot of
the cache alone, which is below its length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from keras_transformer.export.onnx.delegates.fixed_graph import FixedGraph
from keras_transformer.export.onnx.node_maker import NodeMaker

FUNCTIONS = {"Sin": np.sin, "Cos": np.cos}
# Larger tables, in numbers, are not written.
_MOST = 2**22


def with_sine_tables(graph: FixedGraph) -> None:
    """Replaces sines and cosines of constants, and of what depends on one input that is below a known number.

    Args:
        graph: `FixedGraph`, changed in place.
    """
    known: dict[str, tuple[str, np.ndarray] | None] = {}

    def rule(node: onnx.NodeProto, make: NodeMaker) -> bool:
        if node.op_type not in FUNCTIONS:
            return False
        if node.input[0] not in known:
            known[node.input[0]] = _angles(graph, node.input[0])
        found = known[node.input[0]]
        if found is None:
            return False
        source, angles = found
        # In double precision: runtimes round the angle to 32 bits, as the model does, and then compute its sine exactly.
        sines = FUNCTIONS[node.op_type](angles.astype("float64")).astype("float32")
        if not source:
            if node.output[0] in graph.outputs:
                return False
            graph.store(node.output[0], sines[0])
            return True
        table = make.constant(sines.reshape(len(sines), -1), "sines")
        index = source
        if graph.input_shapes[source] != (1,):
            index = make("Reshape", source, make.constant(np.array([1]), "one"))
        row = make("Gather", table, index, axis=0)
        make.into(node.output[0], "Reshape", row, make.constant(np.array(sines.shape[1:], "int64"), "shape"))
        return True

    graph.replace(rule)


def _angles(graph: FixedGraph, name: str) -> tuple[str, np.ndarray] | None:
    """`(source, angles)`: the input that the angles depend on, or "", and the angles for each of its values; or None."""
    nodes, inputs = graph.sources(name)
    source, count = "", 1
    if inputs:
        source = next(iter(inputs))
        count = graph.limits.get(source, 0) if len(inputs) == 1 else 0
        if not count or np.prod(graph.input_shapes[source]) != 1:
            return None
    evaluate = _evaluator(graph, nodes, name, source)
    first = evaluate(0)
    if first.dtype != np.float32 or count * first.size > _MOST:
        return None
    return source, np.stack([first, *(evaluate(number) for number in range(1, count))])


def _evaluator(graph: FixedGraph, nodes: list[onnx.NodeProto], name: str, source: str) -> Any:
    """A function from the value of the source to the value of a name."""
    from onnx.reference import ReferenceEvaluator

    read = {each for node in nodes for each in node.input} | {name}
    arrays = {each: graph.value(each) for each in sorted(read)}
    constants = [numpy_helper.from_array(np.asarray(array), key) for key, array in arrays.items() if array is not None]
    given = [each for each in graph.model.graph.input if each.name == source]
    part = helper.make_graph(nodes, "angles", given, [onnx.ValueInfoProto(name=name)], constants)
    model = helper.make_model(part, opset_imports=graph.model.opset_import, ir_version=graph.model.ir_version)
    evaluator = ReferenceEvaluator(model)
    if not source:
        return lambda number: np.asarray(evaluator.run([name], {})[0])
    dtype = helper.tensor_dtype_to_np_dtype(given[0].type.tensor_type.elem_type)
    shape = graph.input_shapes[source]
    return lambda number: np.asarray(evaluator.run([name], {source: np.full(shape, number, dtype)})[0])
