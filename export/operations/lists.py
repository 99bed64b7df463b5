"""Lists that loops fill, such as the outputs of a recurrent layer."""

from __future__ import annotations

from keras_transformer.export.operations.operation import TFLITE, Operation

_REMEDY = (
    "a recurrent layer needs unroll=True and inputs of a fixed length, or inputs of a fixed batch size; or leave this format"
    " out, with formats=['onnx']"
)
_NAMES = ("FromTensor", "GetItem", "Reserve", "SetItem", "Stack")

OPERATIONS = tuple(Operation(f"TensorList{name}", remedies={TFLITE: _REMEDY}) for name in _NAMES)
