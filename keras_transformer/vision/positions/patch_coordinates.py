"""Coordinates of the patches of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_transformer.positions.grids.axial_rotary import COORDINATE_STEPS, centers
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor
from keras_transformer.vision.patches.patch_embedding import pair_of


@serializable
class PatchCoordinates(keras.layers.Layer):
    """Coordinates of the centers of the patches of an image, for `positions.AxialRotary`.

    Patch r of R rows has `y = 2 (r + 1/2) / R - 1`, and x likewise. In training, the coordinates of a batch may be
    augmented: `(y, x) = (y + s_y, x + s_x) · (j_y, j_x) · k`, with s, j and k drawn once for each call.

    Args:
        patch_size: int or pair of ints. Height and width of a patch in pixels. Default 16.
        num_prefix_tokens: int >= 0. Number of tokens before those of the patches; their coordinates are `(0, 0)`, which
            `AxialRotary` does not rotate. Default 0.
        shift: float in [0, 4], or None. In training, s is uniform in [-shift, shift], for each axis.
        jitter: float in [1, 4], or None. In training, j is log-uniform in [1 / jitter, jitter], for each axis.
        rescale: float in [1, 4], or None. In training, k is log-uniform in [1 / rescale, rescale], for both axes.
        seed: int or None. Seed of the augmentation.

    Call arguments:
        images: `(B, height, width, channels)`, of any size, which may be dynamic. Pixels beyond the last whole patch do not
            count, as of a convolution without padding.

    Returns:
        int32 `(1, num_prefix_tokens + patches, 2)`: y and x in steps of 2^-24.

    Raises:
        ValueError: an argument out of its range.

    Example:

    >>> import numpy as np
    >>> coordinates = PatchCoordinates(patch_size=4, num_prefix_tokens=1)(np.zeros((2, 4, 8, 3)))
    >>> (np.array(coordinates) / 2**24).tolist()
    [[[0.0, 0.0], [0.0, -0.5], [0.0, 0.5]]]

    Reference: Siméoni et al., DINOv3, arXiv 2508.10104, section 3.2, as in its published code.
    """

    def __init__(
        self,
        patch_size: int | Sequence[int] = 16,
        num_prefix_tokens: int = 0,
        shift: float | None = None,
        jitter: float | None = None,
        rescale: float | None = None,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        for name, value, least in (("shift", shift, 0), ("jitter", jitter, 1), ("rescale", rescale, 1)):
            # Coordinates are 32-bit integers.
            if value is not None and not least <= value <= 4:
                raise ValueError(f"{name} must be a number from {least} to 4, or None. Received: {value!r}")
        if num_prefix_tokens < 0:
            raise ValueError(f"num_prefix_tokens must be at least 0. Received: {num_prefix_tokens}")
        self.patch_size = pair_of(patch_size)
        self.num_prefix_tokens = num_prefix_tokens
        self.shift = shift
        self.jitter = jitter
        self.rescale = rescale
        self.seed = seed
        self._seeds = keras.random.SeedGenerator(seed) if self._is_augmented else None

    @property
    def _is_augmented(self):
        return any(value is not None for value in (self.shift, self.jitter, self.rescale))

    def call(self, images: Tensor, training: bool | None = None) -> Tensor:
        size = ops.shape(images)[1:3]
        rows, columns = (length // patch for length, patch in zip(size, self.patch_size, strict=True))
        down, across = (centers(ops.arange(count, dtype="int32"), count) for count in (rows, columns))
        down, across = ops.expand_dims(down, 1), ops.expand_dims(across, 0)
        grid = ops.stack([down + ops.zeros_like(across), ops.zeros_like(down) + across], axis=-1)
        coordinates = ops.reshape(grid, (1, -1, 2))
        if training and self._is_augmented:
            coordinates = self._augmented(coordinates)
        coordinates = ops.cast(ops.round(coordinates * COORDINATE_STEPS), "int32")
        return ops.pad(coordinates, [[0, 0], [self.num_prefix_tokens, 0], [0, 0]])

    def _augmented(self, coordinates):
        if self.shift is not None:
            coordinates = coordinates + self._uniform((1, 1, 2), self.shift)
        for factor, shape in ((self.jitter, (1, 1, 2)), (self.rescale, (1, 1, 1))):
            if factor is not None:
                coordinates = coordinates * ops.exp(self._uniform(shape, math.log(factor)))
        return coordinates

    def _uniform(self, shape, limit):
        return keras.random.uniform(shape, -limit, limit, dtype="float32", seed=self._seeds)

    def compute_output_spec(self, images: Tensor, training: bool | None = None) -> keras.KerasTensor:
        return keras.KerasTensor(self.compute_output_shape(images.shape), dtype="int32")

    def compute_output_shape(self, images_shape: Shape) -> Shape:
        sides = list(zip(images_shape[1:3], self.patch_size, strict=True))
        if any(length is None for length, _ in sides):
            return (1, None, 2)
        return (1, self.num_prefix_tokens + math.prod(length // patch for length, patch in sides), 2)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "patch_size": self.patch_size,
            "num_prefix_tokens": self.num_prefix_tokens,
            "shift": self.shift,
            "jitter": self.jitter,
            "rescale": self.rescale,
            "seed": self.seed,
        }
