"""What rewrites that make several nodes of one share."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_transformer.export.onnx.delegates.editor import Editor
from keras_transformer.export.onnx.node_maker import NodeMaker
from keras_transformer.export.onnx.traversal import all_nodes


def making(editor: Editor, node: Any) -> tuple[NodeMaker, list[Any]]:
    """A `NodeMaker` for the place of a node, whose constants are the editor's, and the list that its nodes go to."""

    def store(name: str, array: np.ndarray) -> str:
        editor.arrays[name] = array
        return name

    made: list[Any] = []
    return NodeMaker(made, node, store), made


def has_bodies(editor: Editor) -> bool:
    """Whether a graph has loops or branches: their bodies read tensors around them, which the editor does not see."""
    return any(count >= len(editor.graph.node) for count, _ in enumerate(all_nodes(editor.graph)))
