"""GGUF files, as llama.cpp uses them: loaded into Keras models, and written."""

from keras_transformer.checkpoints.gguf.reading import from_gguf
from keras_transformer.checkpoints.gguf.writing import to_gguf

__all__ = ["from_gguf", "to_gguf"]
