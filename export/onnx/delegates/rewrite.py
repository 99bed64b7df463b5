"""The rewrites of an ONNX graph for accelerators that compute in fp16, in their order."""

from __future__ import annotations

from typing import Any

from keras_transformer.export.onnx.delegates import absent_values, activations, angles, exponentials, norms
from keras_transformer.export.onnx.delegates.editor import Editor
from keras_transformer.export.spec.lazy_array import AnyArray

_RULES = (
    absent_values.without_large_numbers,
    angles.with_tables,
    norms.with_operators,
    activations.with_tanh,
    activations.without_softplus,
    exponentials.with_bounded_arguments,
)


def rewrite_for_fp16(model: Any, arrays: dict[str, AnyArray], slots: int | None = None) -> None:
    """Writes a graph so that it computes in fp16 what it does in float32; values in float32 change by rounding only.

    Args:
        model: `ModelProto` without initializers, changed in place.
        arrays: dict of name to array: its initializers, changed in place.
        slots: number of the slots of the cache of a decoder, or None.
    """
    editor = Editor(model, arrays, slots)
    for rule in _RULES:
        rule(editor)
