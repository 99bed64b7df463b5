"""Programs of XLA, as which TensorFlow contains what JAX computes, such as `keras.layers.JaxLayer`."""

from __future__ import annotations

from collections.abc import Sequence

from keras_transformer.export.operations.operation import ONNX, SAVED_MODEL, Attributes, Operation, Refused
from keras_transformer.utils.types import Tensor


def _largest_size(attributes: Attributes, operands: Sequence[Tensor], result: Tensor) -> float:
    """The largest size of an operand: nothing else tells how long the sums of a program are."""
    return float(max((size for each in operands for size in each.shape), default=1))


_REMEDY = "write the layer with keras.ops, or leave this format out, with formats=['tflite']"

OPERATIONS = (
    Operation(
        "XlaCallModule",
        {ONNX: Refused("ONNX has no operator that contains a program of XLA", _REMEDY)},
        remedies={SAVED_MODEL: _REMEDY},
        rounds=True,
        rounds_operands=True,
        sum_length=_largest_size,
    ),
)
