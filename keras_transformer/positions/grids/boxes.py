"""Position embeddings of bounding boxes on a page."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class BoxPosition(keras.layers.Layer):
    """Box position embeddings of LayoutLM: adds learned vectors for the bounding box of each word on its page.

    `y = x + X_l + Y_t + X_r + Y_b + H_(b - t) + W_(r - l)` for a box from left l and top t to right r and bottom b.

    Args:
        num_coordinates: int >= 1. Coordinates are in [0, num_coordinates).
        initializer: initializer of the four tables. Defaults to normal with standard deviation 0.02.

    Call arguments:
        inputs: float `(B, T, D)`.
        boxes: int `(B, T, 4)`: left, top, right and bottom of the word of each token. Negative heights and widths are
            clipped to 0.

    Returns:
        `(B, T, D)`, in the dtype of the layer.

    Raises:
        ValueError: `num_coordinates` below 1.

    Example:

    >>> import numpy as np
    >>> layer = BoxPosition(10, initializer="ones")
    >>> layer(np.zeros((1, 1, 2)), boxes=np.array([[[1, 2, 5, 3]]])).numpy().tolist()
    [[[6.0, 6.0]]]

    Reference: Xu et al., LayoutLM, arXiv 1912.13318, section 2.2; height and width as in its published code.
    """

    def __init__(self, num_coordinates: int, initializer: Initializer = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if not isinstance(num_coordinates, int) or num_coordinates < 1:
            raise ValueError(f"num_coordinates must be a positive integer. Received: {num_coordinates!r}")
        self.num_coordinates = num_coordinates
        self.initializer = keras.initializers.get(initializer or keras.initializers.RandomNormal(stddev=0.02))
        self.supports_masking = True

    def build(self, inputs_shape: Shape, boxes_shape: Shape | None = None) -> None:
        self._tables = {
            name: self.add_weight(
                name=name, shape=(self.num_coordinates, inputs_shape[-1]), initializer=self.initializer.clone()
            )
            for name in ("x", "y", "height", "width")
        }

    def call(self, inputs: Tensor, boxes: Tensor) -> Tensor:
        boxes = ops.cast(boxes, "int32")
        left, top, right, bottom = (boxes[:, :, side] for side in range(4))
        coordinates = (
            ("x", left),
            ("y", top),
            ("x", right),
            ("y", bottom),
            ("height", ops.maximum(bottom - top, 0)),
            ("width", ops.maximum(right - left, 0)),
        )
        for name, coordinate in coordinates:
            inputs = inputs + ops.cast(ops.take(self._tables[name], coordinate, axis=0), inputs.dtype)
        return inputs

    def compute_output_shape(self, inputs_shape: Shape, boxes_shape: Shape | None = None) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_coordinates": self.num_coordinates,
            "initializer": keras.initializers.serialize(self.initializer),
        }
