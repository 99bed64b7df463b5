"""Index tensors as linear functions of one number: what an accelerator needs to know of a scatter."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from keras_transformer.export.tflite.delegates.editor import Editor
from keras_transformer.export.tflite.uses import indices


class Affine(NamedTuple):
    """A tensor of integers, `base + slope * number`.

    Args:
        base: array.
        slope: array of the same shape.
        source: index of the tensor of one element that holds the number; None if the slope is zero.
    """

    base: np.ndarray
    slope: np.ndarray
    source: int | None


def affine(editor: Editor, index: int) -> Affine | None:
    """A tensor of integers as a linear function of one number, or None if it is none."""
    value = editor.value(index)
    if value is not None:
        return Affine(value, np.zeros_like(value), None)
    maker = editor.uses.makers.get(index)
    parts = None if maker is None else [affine(editor, each) for each in _data_inputs(editor, maker)]
    known = [each for each in parts or () if each is not None]
    found = _computed(editor, maker, known) if maker is not None and len(known) == len(parts or ()) else None
    if found is None and np.prod(editor.shape(index)) == 1 and editor.type(index) == "INT32":
        return Affine(np.zeros(editor.shape(index), "int32"), np.ones(editor.shape(index), "int32"), index)
    return found


_SHAPED = ("RESHAPE", "BROADCAST_TO", "CAST")


def _data_inputs(editor: Editor, operator: Any) -> tuple[int, ...]:
    inputs = indices(operator.inputs)
    return inputs[:1] if editor.graph.kind(operator) in _SHAPED else inputs


def _computed(editor: Editor, operator: Any, parts: list[Affine]) -> Affine | None:
    """The result of an operator, or None if it is not linear, or depends on several numbers."""
    kind, shape = editor.graph.kind(operator), editor.shape(int(operator.outputs[0]))
    sources = {each.source for each in parts if each.source is not None}
    if len(sources) > 1 or not parts:
        return None
    source = next(iter(sources), None)
    bases, slopes = [each.base for each in parts], [each.slope for each in parts]
    if kind in ("RESHAPE", "CAST"):
        base, slope = bases[0].reshape(shape), slopes[0].reshape(shape)
    elif kind == "BROADCAST_TO":
        base, slope = np.broadcast_to(bases[0], shape), np.broadcast_to(slopes[0], shape)
    elif kind in ("ADD", "SUB"):
        sign = 1 if kind == "ADD" else -1
        base, slope = bases[0] + sign * bases[1], slopes[0] + sign * slopes[1]
    elif kind == "MUL" and any(each.source is None for each in parts):
        base = bases[0] * bases[1]
        slope = slopes[0] * bases[1] + slopes[1] * bases[0]
    elif kind == "PACK":
        axis = operator.builtinOptions.axis
        base, slope = np.stack(bases, axis), np.stack(slopes, axis)
    elif kind == "CONCATENATION":
        axis = operator.builtinOptions.axis
        base, slope = np.concatenate(bases, axis), np.concatenate(slopes, axis)
    else:
        return None
    return Affine(base, np.broadcast_to(slope, base.shape), source if slope.any() else None)
