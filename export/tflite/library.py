"""Name of the TFLite format, and the library that runs it."""

from keras_transformer.export.runtime.libraries import Library

NAME = "tflite"
LIBRARY = Library("ai_edge_litert", "ai-edge-litert")
