"""Base class of the layers that augment sounds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Unpack

import keras

from keras_transformer.utils.processor_config import is_number
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


class RandomAugmentation(keras.layers.Layer):
    """Base of layers that augment their inputs in training only, and keep their shape. Subclasses implement `augment`."""

    def __init__(self, seed: int | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    @abstractmethod
    def augment(self, inputs: Tensor, /) -> Tensor:
        """Returns the augmented inputs, of the same shape."""

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        return self.augment(inputs) if training else inputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "seed": self.seed}


def check_range(limit: float, **settings: float) -> None:
    """Raises `ValueError` if one of the settings is not a number in [0, limit)."""
    for name, value in settings.items():
        if not is_number(value) or not 0 <= value < limit:
            raise ValueError(f"{name} must be a number in [0, {limit}). Received: {value!r}")
