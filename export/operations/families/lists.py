"""Lists that loops fill, such as the outputs of a recurrent layer."""

from __future__ import annotations

from keras_transformer.export.operations.operation import TFLITE, Operation

_REMEDY = (
    "a list of a loop, as of keras.ops.map and keras.ops.scan, needs elements of a fixed shape: give the inputs fixed sizes,"
    " write the loop with keras.ops.while_loop, or leave this format out, with formats=['onnx']"
)
_NAMES = ("FromTensor", "GetItem", "Reserve", "SetItem", "Stack")

OPERATIONS = tuple(Operation(f"TensorList{name}", remedies={TFLITE: _REMEDY}) for name in _NAMES)
