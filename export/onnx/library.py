"""Name of the ONNX format, and the library that runs it."""

from keras_transformer.export.runtime.libraries import Library

NAME = "onnx"
LIBRARY = Library("onnxruntime", "onnxruntime")
