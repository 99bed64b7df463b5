"""The Conformer block."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.block import Block
from keras_transformer.blocks.residual.scaled import ScaledResidual
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor

# What a feed-forward adds is halved: two of them make one.
_HALF = 0.5


@serializable
class ConformerBlock(Block):
    """Conformer block: attention and a convolution between two halves of a feed-forward, then a norm.

        x = x + ½ first_feedforward(norm(x))
        x = x + mixer(norm(x))
        x = x + convolution(norm(x))
        x = norm(x + ½ feedforward(norm(x)))

    Args:
        mixer: `MultiHeadAttention`, another `TokenMixer`, or its config.
        convolution: a layer of tokens and `padding_mask`, such as `audio.ConformerConvolution`, or its config.
        first_feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config.
        feedforward: another one.
        norm: a name in `NORMS`, or a norm layer to copy.
        dropout: float in [0, 1). Dropout rate of the output of each sublayer. Default 0.
        seed: int or None. Seed of the dropout.
        recompute: bool. See `EncoderBlock`. Default False.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token. None: the implicit Keras mask, if any.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: unknown name of a norm.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.audio import ConformerConvolution
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> halves = DenseFeedForward(16), DenseFeedForward(16)
    >>> block = ConformerBlock(MultiHeadAttention(2, 4), ConformerConvolution(3), *halves)
    >>> tuple(block(np.ones((1, 5, 8))).shape)
    (1, 5, 8)

    Reference: Gulati et al., Conformer, arXiv 2005.08100, section 2.4.
    """

    def __init__(
        self,
        mixer: LayerLike,
        convolution: LayerLike,
        first_feedforward: LayerLike,
        feedforward: LayerLike,
        norm: LayerLike = "layer_norm",
        dropout: float = 0.0,
        seed: int | None = None,
        recompute: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__("pre", norm, dropout, seed, recompute, **kwargs)
        given = {"mixer": mixer, "convolution": convolution}
        given |= {"first_feedforward": first_feedforward, "feedforward": feedforward}
        for name, layer in given.items():
            setattr(self, name, resolve(layer, {}, keras.layers.Layer, argument=name))
        half = ScaledResidual(_HALF, self.norm)
        self.first_feedforward_residual = self._make_residual("first_feedforward_residual", half)
        self.mixer_residual = self._make_residual("mixer_residual")
        self.convolution_residual = self._make_residual("convolution_residual")
        self.feedforward_residual = self._make_residual("feedforward_residual", half)
        final = resolve(self.norm, NORMS, keras.layers.Layer, argument="norm")
        self.final_norm = clone(final, name="final_norm", dtype=self.dtype_policy)

    def build(self, inputs_shape: Shape) -> None:
        self._build_sublayer(self.first_feedforward_residual, self.first_feedforward, inputs_shape)
        self._build_sublayer(self.mixer_residual, self.mixer, inputs_shape, inputs_shape)
        self._build_sublayer(self.convolution_residual, self.convolution, inputs_shape)
        self._build_sublayer(self.feedforward_residual, self.feedforward, inputs_shape)
        self.final_norm.build(inputs_shape)

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        padding_mask = implicit_mask(inputs) if padding_mask is None else padding_mask

        def mix(x):
            return self.mixer(x, x, value_mask=padding_mask, training=training)

        def convolve(x):
            return self.convolution(x, padding_mask=padding_mask, training=training)

        def run(x):
            for residual, sublayer in (
                (self.first_feedforward_residual, lambda x: self.first_feedforward(x, training=training)),
                (self.mixer_residual, mix),
                (self.convolution_residual, convolve),
                (self.feedforward_residual, lambda x: self._feed_forward(x, padding_mask, training)),
            ):
                x = self._apply_residual(residual, sublayer, x, padding_mask, training)
            return self.final_norm(x)

        return self._run(run, inputs, training=training)

    def get_config(self) -> Config:
        config = super().get_config()
        config.pop("residual")
        names = ("mixer", "convolution", "first_feedforward", "feedforward")
        return {**config, **{name: serialize(getattr(self, name)) for name in names}}
