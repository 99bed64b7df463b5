"""The norms by name: see `keras_transformer.norms`."""

from keras_transformer.norms import NORMS

__all__ = ["NORMS"]
