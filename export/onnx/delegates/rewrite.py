"""The rewrites of an ONNX graph by target, in their order."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from keras_transformer.export.onnx.delegates.editor import Editor
from keras_transformer.export.onnx.delegates.half_precision import (
    with_bounded_arguments,
    with_operators,
    with_tanh,
    without_large_numbers,
    without_softplus,
)
from keras_transformer.export.onnx.delegates.sines import with_sine_polynomials, with_sine_tables
from keras_transformer.export.onnx.delegates.supported_types import with_integer_operators, with_supported_types
from keras_transformer.export.onnx.delegates.webgpu import with_padded_channels, without_one_hots

RULES: dict[str, tuple[Callable[[Editor], None], ...]] = {
    "qnn": (
        without_large_numbers,
        with_sine_tables,
        with_operators,
        with_tanh,
        without_softplus,
        with_bounded_arguments,
        with_integer_operators,
    ),
    "webgpu": (
        with_sine_tables,
        with_sine_polynomials,
        without_one_hots,
        with_supported_types,
        with_integer_operators,
        with_padded_channels,
    ),
    "coreml": (with_sine_tables, without_one_hots),
}


def rewrite(target: str, model: ir.Model, slots: int | None = None) -> None:
    """Writes a graph as a target computes it; values in float32 change by rounding only.

    Args:
        target: key of `TARGETS`. Graphs of those that are not in `RULES` stay as they are.
        model: `onnx_ir.Model`, changed in place.
        slots: number of the slots of the cache of a decoder, or None.
    """
    if target not in RULES:
        return
    editor = Editor(model, slots)
    for rule in RULES[target]:
        rule(editor)
