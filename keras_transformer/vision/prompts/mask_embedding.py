"""Masks of prompts, added to the features of an image."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.utils.serialization import build_once, serializable
from keras_transformer.utils.types import Activation, Config, LayerOptions, Shape, Tensor


@serializable
class MaskEmbedding(keras.layers.Layer):
    """Adds the mask of each prompt of an image to the features of the image, or a learned vector if there is no mask.

    Three convolutions reduce a mask to a quarter of its rows and columns, with a norm and an activation after the first two.

    Args:
        channels: int, a multiple of 4. Channels of the second convolution; the first has a quarter of them. Default 16.
        activation: of the convolutions. Default "gelu".
        layer_norm_epsilon: float > 0. Of both norms. Default 1e-6.

    Call arguments:
        inputs: float `(B, rows, columns, D)`: features of images.
        masks: float `(B, P, 4 rows, 4 columns)`: for each prompt of each image the logits of a mask, such as those of an
            earlier answer.
        has_mask: bool `(B, P)`: which prompts have a mask; the others' values do not count.

    Returns:
        `(B · P, rows · columns, D)`: the features for each prompt, row by row.

    Raises:
        ValueError: `channels` is not a multiple of 4; masks of another size.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> features, masks = np.ones((2, 3, 2, 8)), np.ones((2, 5, 12, 8))
    >>> tuple(MaskEmbedding(4)(features, masks, np.ones((2, 5), bool)).shape)
    (10, 6, 8)

    Reference: Kirillov et al., Segment Anything, arXiv 2304.02643, appendix A (prompt encoder, dense prompts); there all
    prompts of an image share a mask.
    """

    no_mask: keras.Variable

    def __init__(
        self,
        channels: int = 16,
        activation: Activation = "gelu",
        layer_norm_epsilon: float = 1e-6,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if positive("channels", channels) % 4:
            raise ValueError(f"channels must be a multiple of 4. Received: {channels!r}")
        self.channels = channels
        self.activation = get_activation(activation)
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, inputs_shape: Shape, masks_shape: Shape, has_mask_shape: Shape | None = None) -> None:
        rows, columns, width = inputs_shape[1:]
        if None in (rows, columns) or tuple(masks_shape[2:]) != (4 * rows, 4 * columns):
            raise ValueError(
                f"{self.name} takes masks with four times the rows and columns of the features. Received: features "
                f"{tuple(inputs_shape)}, masks {tuple(masks_shape)}"
            )
        shape: Shape = (None, 4 * rows, 4 * columns, 1)
        self._convolutions, self._norms = [], []
        for index, channels in enumerate((self.channels // 4, self.channels)):
            options = {"dtype": self.dtype_policy}
            convolution = keras.layers.Conv2D(channels, 2, strides=2, name=f"convolution_{index}", **options)
            norm = LayerNormalization(epsilon=self.layer_norm_epsilon, name=f"norm_{index}", **options)
            for layer in (convolution, norm):
                build_once(layer, shape)
                shape = layer.compute_output_shape(shape)
            self._convolutions.append(convolution)
            self._norms.append(norm)
        self._projection = keras.layers.Dense(width, name="projection", dtype=self.dtype_policy)
        self._projection.build(shape)
        self.no_mask = self.add_weight(
            name="no_mask", shape=(width,), initializer=keras.initializers.RandomNormal(stddev=1.0)
        )

    def call(self, inputs: Tensor, masks: Tensor, has_mask: Tensor) -> Tensor:
        (rows, columns, width), prompts = inputs.shape[1:], ops.shape(masks)[1]
        x = ops.reshape(masks, (-1, 4 * rows, 4 * columns, 1))
        for convolution, norm in zip(self._convolutions, self._norms, strict=True):
            x = self.activation(norm(convolution(x)))
        x = ops.reshape(self._projection(x), (-1, rows * columns, width))
        has_mask = ops.cast(ops.reshape(has_mask, (-1, 1, 1)), x.dtype)
        x = x * has_mask + ops.cast(self.no_mask, x.dtype) * (1 - has_mask)
        features = ops.reshape(inputs, (-1, 1, rows * columns, width))
        x = features + ops.reshape(x, (-1, prompts, rows * columns, width))
        return ops.reshape(x, (-1, rows * columns, width))

    def compute_output_shape(
        self, inputs_shape: Shape, masks_shape: Shape, has_mask_shape: Shape | None = None
    ) -> Shape:
        count = None if None in (inputs_shape[0], masks_shape[1]) else inputs_shape[0] * masks_shape[1]
        return (count, inputs_shape[1] * inputs_shape[2], inputs_shape[3])

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "channels": self.channels,
            "activation": keras.activations.serialize(self.activation),
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }
