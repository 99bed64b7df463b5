"""Outputs of the nodes of a `FunctionDef`."""

from typing import Any


def rename_output(function: Any, old: str, new: str) -> None:
    """Lets all readers of an output of a node, and the function's results, read another name of it.

    Args:
        function: `FunctionDef`, changed in place.
        old: name of the output, such as `"node:y:0"`.
        new: the name to read.
    """
    for node in function.node_def:
        node.input[:] = [new if name == old else name for name in node.input]
    for key, name in function.ret.items():
        if name == old:
            function.ret[key] = new
