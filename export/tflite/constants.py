"""Constants in the functions of a SavedModel."""

from typing import Any

import numpy as np

# tensorflow.DataType.DT_FLOAT, DT_INT32, DT_INT8, DT_BOOL and DT_INT64.
FLOAT, INT32, INT8, BOOL = 1, 3, 6, 10
INTEGERS = {INT32: np.int32, 9: np.int64}
_TYPES = {FLOAT: np.float32, **INTEGERS}


def constant_value(nodes: dict[str, Any], name: str) -> np.ndarray | None:
    """Returns the value of a constant node, or None for another node.

    Args:
        nodes: dict of node name to `NodeDef`.
        name: name of a node, or of its output.
    """
    from tensorflow import make_ndarray

    node = nodes.get(name.split(":")[0])
    return make_ndarray(node.attr["value"].tensor) if node is not None and node.op == "Const" else None


def add_constant(function: Any, name: str, array: np.ndarray, kind: int = INT32) -> str:
    """Adds a constant to a `FunctionDef`; returns the name of its output."""
    from tensorflow import make_tensor_proto

    node = function.node_def.add(name=name, op="Const")
    node.attr["value"].tensor.CopyFrom(make_tensor_proto(array.astype(_TYPES[kind])))
    node.attr["dtype"].type = kind
    return f"{name}:output:0"
