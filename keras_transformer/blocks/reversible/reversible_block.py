"""The reversible residual block."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.block import serialize_template, template
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import build_once, clone, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, LayerLike, LayerOptions, Outputs, Shape, Tensor


@serializable
class ReversibleBlock(keras.layers.Layer):
    """Reversible residual block on two streams: `y_1 = x_1 + f(x_2)`, `y_2 = x_2 + g(y_1)`.

    f is a mixer and g a feed-forward, each with its own norm before it. `ReversibleStack` stacks such blocks.

    Args:
        mixer: `MultiHeadAttention`, another `TokenMixer`, or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config.
        causal: bool. Whether the mixer is causal. Default False.
        norm: "layer_norm", "rms_norm", or a norm layer to copy. Batch norms are refused.
        dropout: float in [0, 1). Dropout rate of the outputs of mixer and feed-forward.
        seed: int or None. Seed of the dropout.

    Call arguments:
        first, second: float `(B, T, D)`: the streams.
        padding_mask: boolean `(B, T)`, True = a real token. None: the implicit Keras mask, if any.
        positions: int `(T,)` or `(B, T)`; see `MultiHeadAttention`.

    Returns:
        `(y_1, y_2)`, `(B, T, D)` each.

    Raises:
        ValueError: a batch norm.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = ReversibleBlock(MultiHeadAttention(2, 4), DenseFeedForward(16))
    >>> [tuple(y.shape) for y in block(np.ones((1, 3, 8)), np.ones((1, 3, 8)))]
    [(1, 3, 8), (1, 3, 8)]

    Reference: Gomez et al., The Reversible Residual Network, arXiv 1707.04585, equation 6; Kitaev et al., Reformer, arXiv
    2001.04451, section 3.
    """

    def __init__(
        self,
        mixer: LayerLike,
        feedforward: LayerLike,
        causal: bool = False,
        norm: LayerLike = "layer_norm",
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.causal = causal
        self.norm = template(norm, NORMS, keras.layers.Layer)
        layer = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        if isinstance(layer, keras.layers.BatchNormalization):
            raise ValueError(f"{self.name} recomputes its inputs: a batch norm would update its statistics twice.")
        self.mixer_norm, self.feedforward_norm = (
            clone(layer, name=name, dtype=self.dtype_policy) for name in ("mixer_norm", "feedforward_norm")
        )
        self.dropout = dropout
        self.seed = seed
        self._mixer_dropout, self._feedforward_dropout = (
            Dropout(dropout, seed=seed, dtype=self.dtype_policy) for _ in range(2)
        )

    def build(self, first_shape: Shape, second_shape: Shape | None = None) -> None:
        for layer in (self.mixer_norm, self.feedforward_norm, self.feedforward):
            build_once(layer, first_shape)
        build_once(self.mixer, first_shape, first_shape)

    def call(
        self,
        first: Tensor,
        second: Tensor,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor]:
        padding_mask = implicit_mask(first) if padding_mask is None else padding_mask
        first = first + self.mix(second, padding_mask, positions, training)
        return first, second + self.feed(first, training)

    def mix(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """Computes f, `(B, T, D)`."""
        x = self.mixer_norm(x)
        options = {"positions": positions, "use_causal_mask": self.causal, "training": training}
        return self._mixer_dropout(self.mixer(x, x, value_mask=padding_mask, **options), training=training)

    def extend(
        self,
        x: Tensor,
        cache: Cache,
        cache_index: Tensor,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> tuple[Tensor, Cache]:
        """Computes f of new tokens; returns the next cache of the mixer too."""
        x = self.mixer_norm(x)
        options = {"positions": positions, "cache": cache, "cache_index": cache_index}
        return self.mixer(x, x, query_mask=padding_mask, use_causal_mask=True, **options)

    def feed(self, x: Tensor, training: bool | None = None) -> Tensor:
        """Computes g, `(B, T, D)`."""
        return self._feedforward_dropout(
            self.feedforward(self.feedforward_norm(x), training=training), training=training
        )

    def compute_output_spec(self, first: Tensor, second: Tensor, *args: object, **options: object) -> Outputs:
        return tuple(keras.KerasTensor(x.shape, dtype=self.compute_dtype) for x in (first, second))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "feedforward": serialize(self.feedforward),
            "causal": self.causal,
            "norm": serialize_template(self.norm),
            "dropout": self.dropout,
            "seed": self.seed,
        }
