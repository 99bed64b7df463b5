"""Operators of booleans and integers in types that ONNX Runtime computes them in on WebGPU.

Integers would not do for moving booleans: slices of small ones are left to the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from keras_transformer.export.onnx.delegates.editor import Editor


def with_supported_types(editor: Editor) -> None:
    """Writes what moves booleans as a move of float32, and `Abs` of int32 as a choice.

    Args:
        editor: `Editor` of a graph of fixed shapes.
    """
    found: dict[str, list[Any]] = {}
    for node in editor.nodes("Slice", "Identity", "Abs"):
        make, made = editor.making(node)
        dtype = editor.dtype(node.input[0])
        if node.op_type == "Abs" and dtype == TensorProto.INT32:
            zero = make.constant(np.array(0, "int32"), "zero")
            negative = make("Less", node.input[0], zero)
            make.into(node.output[0], "Where", negative, make("Sub", zero, node.input[0]), node.input[0])
        elif node.op_type != "Abs" and dtype == TensorProto.BOOL:
            number = make("Cast", node.input[0], to=TensorProto.FLOAT)
            if node.op_type == "Slice":
                number = make("Slice", number, *node.input[1:])
            make.into(node.output[0], "Cast", number, to=TensorProto.BOOL)
        if made:
            found[node.output[0]] = made
    editor.replace(found)
