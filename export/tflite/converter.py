"""The call of TensorFlow's converter. This is the only file that touches a private attribute of it."""

from typing import Any

import tensorflow as tf


def convert_saved_model(source: str, names: list[str]) -> bytes:
    """Converts a SavedModel to a TFLite file of built-in operators.

    `TFLiteConverter.from_saved_model(...).convert()` loads the SavedModel three times as Python graphs, for checks, for
    metadata and for the places of errors, and takes most of its time and memory for that. The converter itself, which is
    written in C++, reads the folder on its own: here it is called alone.

    Args:
        source: path of the SavedModel.
        names: names of its signatures.

    Returns:
        The content of the file.
    """
    from tensorflow.lite.python import lite

    converter_class: Any = getattr(lite, "TFLiteSavedModelConverterV2", None)
    if not hasattr(converter_class, "_convert_from_saved_model"):  # Another release of TensorFlow.
        return _options(tf.lite.TFLiteConverter.from_saved_model(source, signature_keys=names)).convert()
    converter = _options(converter_class(source, {tf.saved_model.SERVING}, names))
    # It would unpack and pack the file in Python to merge equal constants, which `fused` does too.
    converter._optimize_tflite_model = lambda content, *_, **__: content
    return converter._convert_from_saved_model(tf.compat.v1.GraphDef())  # The graph is for statistics.


def _options(converter: tf.lite.TFLiteConverter) -> tf.lite.TFLiteConverter:
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    converter.exclude_conversion_metadata = True  # It would be added by unpacking and packing the file in Python.
    return converter
