"""What the layers that change sounds at random have in common."""

from typing import Any

import keras

from keras_transformer.utils.processor_config import is_number
from keras_transformer.utils.types import Config, Shape, Tensor


class RandomChange(keras.layers.Layer):
    """Changes what comes in, in training alone, and never its shape. A subclass gives `change(inputs)`."""

    def __init__(self, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        return self.change(inputs) if training else inputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "seed": self.seed}


def check_range(below, **settings: Any):
    """Raises ValueError where one of the settings is not a number of [0, below)."""
    for name, value in settings.items():
        if not is_number(value) or not 0 <= value < below:
            raise ValueError(f"{name} must be a number from 0 to below {below}. Received: {value!r}")
