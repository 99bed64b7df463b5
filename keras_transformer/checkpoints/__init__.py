"""Checkpoints of Hugging Face: loaded into Keras models, and written back."""

from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import (
    CheckpointError,
    ConfigError,
    CorruptFileError,
    MissingFileError,
    MissingTensorError,
    TensorShapeError,
    TensorTypeError,
    UnexpectedTensorError,
    UnknownArchitectureError,
    UnsafePathError,
)
from keras_transformer.checkpoints.families import ARCHITECTURES
from keras_transformer.checkpoints.gguf import from_gguf, to_gguf
from keras_transformer.checkpoints.peft import from_peft, to_peft
from keras_transformer.checkpoints.reading import from_huggingface
from keras_transformer.checkpoints.writing import to_huggingface

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "CheckpointError",
    "Config",
    "ConfigError",
    "CorruptFileError",
    "Head",
    "MissingFileError",
    "MissingTensorError",
    "TensorShapeError",
    "TensorTypeError",
    "UnexpectedTensorError",
    "UnknownArchitectureError",
    "UnsafePathError",
    "from_gguf",
    "from_huggingface",
    "from_peft",
    "to_gguf",
    "to_huggingface",
    "to_peft",
]
