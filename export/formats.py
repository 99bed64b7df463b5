"""The formats by name. Each is a module with `NAME` and `write(traced, spec, directory)`."""

import importlib

from keras_transformer.export.errors import UnknownFormatError

# Written in this order: TFLite is converted from the SavedModel.
FORMATS = {
    "saved_model": "keras_transformer.export.saved_model.convert",
    "tflite": "keras_transformer.export.tflite.convert",
    "onnx": "keras_transformer.export.onnx.convert",
}


def check_formats(names):
    """The names in the order in which they are written, each once.

    Raises:
        UnknownFormatError: a name is not a key of `FORMATS`, or none is given.
    """
    names = [names] if isinstance(names, str) else list(names)
    for name in names or [""]:
        if name not in FORMATS:
            raise UnknownFormatError(name, FORMATS)
    return [name for name in FORMATS if name in names]


def writer(name):
    """The module that writes a format."""
    return importlib.import_module(FORMATS[name])
