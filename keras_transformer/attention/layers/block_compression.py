"""Learned compression of blocks of keys or values to one vector each, as in native sparse attention."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.layers.projection import token_projection
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class BlockCompression(keras.layers.Layer):
    """Compresses a block of l vectors to one, `φ(x) = W_2 silu(W_1 [x_1 + e_1; ...; x_l + e_l] + b_1) + b_2`.

    The learned encodings e tell the places inside a block apart. The hidden width is that of a vector.

    Args:
        length: int >= 1. l.
        kernel_initializer: initializer of W_1 and W_2.

    Call arguments:
        blocks: float `(R, C, l · W)`: C blocks of each row, the vectors of a block side by side.
        is_real: float `(R, C, l)`, 1 for a real vector and 0 for padding, which counts as zeros; or None.

    Returns:
        `(R, C, W)`.

    Weights: "encoding" `(l, W)`, and those of "hidden" and "output".

    Example:

    >>> import numpy as np
    >>> tuple(BlockCompression(length=4)(np.ones((2, 3, 4 * 5), "float32")).shape)
    (2, 3, 5)

    Reference: Yuan et al., Native Sparse Attention, arXiv 2502.11089, equation 7. The paper names an MLP with an encoding of
    the position inside the block; its hidden width and activation are ours.
    """

    def __init__(
        self, length: int, kernel_initializer: Initializer = "glorot_uniform", **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.length = length
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, blocks_shape: Shape) -> None:
        width = blocks_shape[-1] // self.length
        normal = keras.initializers.RandomNormal(stddev=0.02)
        self.encoding = self.add_weight(name="encoding", shape=(self.length, width), initializer=normal)
        self.hidden_dense = token_projection(self, "hidden", width, activation="silu")
        self.hidden_dense.build(blocks_shape)
        self.output_dense = token_projection(self, "output", width)
        self.output_dense.build((*blocks_shape[:-1], width))

    def call(self, blocks: Tensor, is_real: Tensor | None = None) -> Tensor:
        x = blocks + ops.reshape(ops.cast(self.encoding, blocks.dtype), (1, 1, -1))
        if is_real is not None:
            x = x * ops.repeat(ops.cast(is_real, x.dtype), blocks.shape[2] // self.length, axis=2)
        return self.output_dense(self.hidden_dense(x))

    def compute_output_shape(self, blocks_shape: Shape, is_real_shape: Shape | None = None) -> Shape:
        return (*blocks_shape[:-1], blocks_shape[-1] // self.length)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "length": self.length,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
