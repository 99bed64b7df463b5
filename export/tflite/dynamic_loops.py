"""Loops over tensors of dynamic shapes in TFLite files."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from keras_transformer.export.tflite.calls import operator_kinds
from keras_transformer.export.tflite.signature_content import graphs_of_signature
from keras_transformer.export.tflite.tree import schema


def has_dynamic_loop(path: pathlib.Path, signature: str) -> bool:
    """Whether a signature has a loop, one of whose variables has a dynamic shape.

    Args:
        path: path of the file, which was checked: see `check_flatbuffer`.
        signature: name of a signature of it.
    """
    model = schema().Model.GetRootAs(np.memmap(path, "uint8", "r"), 0)
    kinds = operator_kinds(model)
    for number in graphs_of_signature(model, signature):
        graph = model.Subgraphs(number)
        for position in range(graph.OperatorsLength()):
            operator = graph.Operators(position)
            if kinds[operator.OpcodeIndex()] == "WHILE" and _is_dynamic(graph, operator):
                return True
    return False


def _is_dynamic(graph: Any, operator: Any) -> bool:
    sizes = (graph.Tensors(index).ShapeSignatureAsNumpy() for index in operator.InputsAsNumpy())
    return any((np.atleast_1d(each) < 0).any() for each in sizes if not isinstance(each, int))
