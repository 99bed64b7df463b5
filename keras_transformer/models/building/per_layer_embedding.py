"""Per-layer embeddings of Gemma 3n: an input of each block for each token."""

from __future__ import annotations

import math
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.layers.norms import NORMS
from keras_transformer.layers.projection import token_projection
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class PerLayerEmbedding(keras.layers.Layer):
    """An input of each of L blocks: `(√P E[id] + norm(x W)) / √2`, of the width P, for the embedding x of a token.

    Args:
        num_layers: int >= 1. L.
        vocabulary_size: int >= 1. Rows of E. Larger ids have the first row.
        width: int >= 1. P.
        norm: a name in `NORMS`, or a norm layer to copy.

    Call arguments:
        token_ids: int32 `(B, T)`.
        inputs: float `(B, T, D)`: the embeddings of the tokens, before they are multiplied by `√D`.

    Returns:
        A tuple of L tensors `(B, T, P)`.

    Weights: "embeddings" `(vocabulary_size, L · P)`, and those of "projection" and "norm".

    Example:

    >>> import numpy as np
    >>> layer = PerLayerEmbedding(num_layers=2, vocabulary_size=7, width=3)
    >>> [tuple(x.shape) for x in layer(np.array([[5, 6]]), np.ones((1, 2, 8), "float32"))]
    [(1, 2, 3), (1, 2, 3)]

    Reference: Google, Gemma 3n, 2025, and its code, which multiplies embeddings by `√D` and divides the product by it.
    """

    def __init__(
        self,
        num_layers: int,
        vocabulary_size: int,
        width: int,
        norm: LayerLike = "rms_norm",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_layers = positive("num_layers", num_layers)
        self.vocabulary_size = positive("vocabulary_size", vocabulary_size)
        self.width = positive("width", width)
        self.norm_template = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        self.kernel_initializer = keras.initializers.get("glorot_uniform")

    def build(self, token_ids_shape: Shape, inputs_shape: Shape) -> None:
        total = self.num_layers * self.width
        self.embeddings = self.add_weight(
            name="embeddings", shape=(self.vocabulary_size, total), initializer="random_normal"
        )
        self.projection = token_projection(self, "projection", total, use_bias=False)
        self.projection.build(inputs_shape)
        self.norm = clone(self.norm_template, name="norm", dtype=self.dtype_policy)
        self.norm.build((*inputs_shape[:2], self.num_layers, self.width))

    def call(self, token_ids: Tensor, inputs: Tensor) -> tuple[Tensor, ...]:
        shape = (-1, ops.shape(inputs)[1], self.num_layers, self.width)
        ids = ops.where(token_ids < self.vocabulary_size, token_ids, ops.zeros_like(token_ids))
        embedded = ops.cast(ops.take(self.embeddings, ids, axis=0), inputs.dtype) * math.sqrt(self.width)
        both = ops.reshape(embedded, shape) + self.norm(ops.reshape(self.projection(inputs), shape))
        both = both * math.sqrt(0.5)
        return tuple(both[:, :, index] for index in range(self.num_layers))

    def compute_output_shape(self, token_ids_shape: Shape, inputs_shape: Shape) -> tuple[Shape, ...]:
        return ((*inputs_shape[:2], self.width),) * self.num_layers

    def compute_output_spec(self, token_ids: Tensor, inputs: Tensor) -> tuple[keras.KerasTensor, ...]:
        shapes = self.compute_output_shape(token_ids.shape, inputs.shape)
        return tuple(keras.KerasTensor(shape, dtype=self.compute_dtype) for shape in shapes)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "vocabulary_size": self.vocabulary_size,
            "width": self.width,
            "norm": serialize(self.norm_template),
        }
