"""Programs of XLA, as which TensorFlow contains what JAX computes, such as `keras.layers.JaxLayer`."""

from __future__ import annotations

from keras_transformer.export.operations.operation import ONNX, SAVED_MODEL, Operation, Refused

_REMEDY = "write the layer with keras.ops, or leave this format out, with formats=['tflite']"

OPERATIONS = (
    Operation(
        "XlaCallModule",
        {ONNX: Refused("ONNX has no operator that contains a program of XLA", _REMEDY)},
        remedies={SAVED_MODEL: _REMEDY},
    ),
)
