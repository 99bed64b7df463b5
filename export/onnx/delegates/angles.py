"""Sines and cosines of rotary positions as a table of the slots of the cache.

In fp16 the angle of the slot 500 is known to 0.25, and that of the slot 23 to 0.008. What depends on the index of a slot
alone is known when the file is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from keras_transformer.export.onnx.delegates.editor import Editor, make

_FUNCTIONS = {"Sin": np.sin, "Cos": np.cos}
_ELEMENTWISE = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
_SHAPES = ("Reshape", "Unsqueeze", "Squeeze", "Identity")
_MOST = 2**22


def with_tables(editor: Editor) -> None:
    """A lookup in place of a sine or cosine of what depends on the index of a slot alone."""
    if editor.slots is None:
        return
    found = {}
    for node in editor.graph.node:
        table = _table(editor, node) if node.op_type in _FUNCTIONS else None
        if table is None:
            continue
        (source,), y = _leaves(editor, node.input[0]), node.output[0]
        row, shape = f"{y}/row", editor.constant(y, np.array(editor.shape(y), "int64"))
        found[y] = [
            make("Gather", [editor.constant(y, table), source], row, node, axis=0),
            make("Reshape", [row, shape], y, node),
        ]
    if found:
        editor.replace(found)


def _table(editor: Editor, node: Any) -> np.ndarray | None:
    """The results of a node for each slot, a row for each, or None where they depend on something else."""
    leaves, shape = _leaves(editor, node.input[0]), editor.shape(node.output[0])
    slots = editor.slots or 0
    if leaves != {editor.index} or shape is None or None in shape or editor.shape(editor.index or "") != (1,):
        return None
    if slots * int(np.prod(np.array(shape, "int64"))) > _MOST:
        return None
    angles = _values(editor, node.input[0], np.arange(slots))
    if angles is None:
        return None
    # In double precision: the runtime rounds the angle, as the model does, and then computes its sine exactly.
    table = _FUNCTIONS[node.op_type](angles.astype("float64")).astype("float32")
    return np.ascontiguousarray(np.broadcast_to(table, (slots, *shape))).reshape(slots, -1)


def _leaves(editor: Editor, name: str) -> set[str]:
    """The tensors that a tensor depends on: inputs, and results of operators other than elementwise ones."""
    if editor.value(name) is not None:
        return set()
    maker = editor.makers.get(name)
    if maker is None or maker.op_type not in (*_ELEMENTWISE, *_SHAPES, "Cast"):
        return {name}
    inputs = maker.input if maker.op_type in _ELEMENTWISE else maker.input[:1]
    return set().union(*(_leaves(editor, each) for each in inputs))


def _values(editor: Editor, name: str, numbers: np.ndarray) -> np.ndarray | None:
    """The values `(slots, ...)` of a tensor for the numbers of slots; None where they are not known."""
    shape = editor.shape(name)
    if name == editor.index:
        return numbers.astype("int32").reshape(-1, 1)
    constant = editor.value(name)
    if constant is not None:
        return np.broadcast_to(constant, (len(numbers), *constant.shape))
    if shape is None or None in shape:
        return None
    maker = editor.makers[name]
    inputs = maker.input if maker.op_type in _ELEMENTWISE else maker.input[:1]
    parts = [_values(editor, each, numbers) for each in inputs]
    known = [each for each in parts if each is not None]
    if len(known) < len(parts):
        return None
    if maker.op_type in _ELEMENTWISE:
        aligned = [each.reshape(len(numbers), *(1,) * (len(shape) + 1 - each.ndim), *each.shape[1:]) for each in known]
        return _ELEMENTWISE[maker.op_type](*aligned)
    if maker.op_type == "Cast":
        to = next(each.i for each in maker.attribute if each.name == "to")
        return known[0].astype(helper.tensor_dtype_to_np_dtype(to))
    return known[0].reshape(len(numbers), *(size or 0 for size in shape))
