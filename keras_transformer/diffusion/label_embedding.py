"""The embedding of class labels, with a label for no class."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class LabelEmbedding(keras.layers.Layer):
    """Label embedding whose labels are replaced at random in training by "no class", for classifier-free guidance.

    Args:
        num_classes: int >= 1. Labels are 0 .. `num_classes` - 1; `num_classes` stands for no class.
        hidden_dim: int >= 1. Width D of the embedding.
        dropout: float in [0, 1]. Share of the labels that training replaces. Default 0.1.
        seed: int or None. Seed of the dropout.

    Call arguments:
        labels: int `(B,)`.

    Returns:
        `(B, D)`.

    Raises:
        ValueError: `num_classes` below 1, or a dropout outside [0, 1].

    Example:

    >>> import numpy as np
    >>> layer = LabelEmbedding(num_classes=3, hidden_dim=4, dropout=1.0)
    >>> vectors = layer(np.array([0, 3]), training=True).numpy()
    >>> bool((vectors[0] == vectors[1]).all())
    True

    Reference: Ho and Salimans, Classifier-Free Diffusion Guidance, arXiv 2207.12598, section 3.2; Peebles and Xie,
    arXiv 2212.09748, section 3.1.
    """

    def __init__(
        self,
        num_classes: int,
        hidden_dim: int,
        dropout: float = 0.1,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if num_classes < 1 or not 0 <= dropout <= 1:
            raise ValueError(
                "num_classes must be at least 1 and dropout in [0, 1]. "
                f"Received: num_classes={num_classes}, dropout={dropout}"
            )
        self.num_classes = num_classes
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.seed = seed
        self._seeds = keras.random.SeedGenerator(seed)
        self._table = keras.layers.Embedding(
            num_classes + 1,
            hidden_dim,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=0.02),
            dtype=self.dtype_policy,
            name="table",
        )

    def build(self, labels_shape: Shape) -> None:
        self._table.build(labels_shape)

    def call(self, labels: Tensor, training: bool | None = None) -> Tensor:
        labels = ops.cast(labels, "int32")
        if training and self.dropout:
            drawn = keras.random.uniform(ops.shape(labels), seed=self._seeds)
            labels = ops.where(drawn < self.dropout, self.num_classes, labels)
        return self._table(labels)

    def compute_output_shape(self, labels_shape: Shape) -> Shape:
        return (*labels_shape, self.hidden_dim)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "hidden_dim": self.hidden_dim,
            "dropout": self.dropout,
            "seed": self.seed,
        }
