"""The branched half of the Evolved Transformer's encoder cell."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.block import Block
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class BranchedEncoderBlock(Block):
    """A gated linear unit and a convolution, each inside a residual scheme.

    With `residual="pre"`: `x = x + gate(norm(x))`, then `x = x + convolution(norm(x))`.

    Args:
        gate: a layer `(B, T, D)` to `(B, T, D)` on single tokens, such as `feedforward.GatedLinearUnit`, or its config.
        convolution: a mixer, such as `attention.BranchedConvolution`, or its config.
        residual: a name in `RESIDUALS`, or a `Residual` instance to copy. Default "pre".
        norm: a name in `NORMS`, or a norm layer to copy. Used if `residual` is a name.
        dropout: float in [0, 1). Dropout rate of the output of each sublayer. Default 0.
        seed: int or None. Seed of the dropout.
        recompute: bool. See `EncoderBlock`.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token. None: the implicit Keras mask, if any.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: unknown name of a residual scheme or a norm.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import LightweightConvolution
    >>> from keras_transformer.feedforward import GatedLinearUnit
    >>> block = BranchedEncoderBlock(GatedLinearUnit(), LightweightConvolution(2, kernel_size=3))
    >>> tuple(block(np.ones((1, 3, 8))).shape)
    (1, 3, 8)

    Reference: So et al., The Evolved Transformer, arXiv 1901.11117, figure 3 (upper half of the encoder cell).
    """

    def __init__(
        self,
        gate: LayerLike,
        convolution: LayerLike,
        residual: str | Residual = "pre",
        norm: LayerLike = "layer_norm",
        dropout: float = 0.0,
        seed: int | None = None,
        recompute: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self.gate = resolve(gate, {}, keras.layers.Layer, argument="gate")
        self.convolution = resolve(convolution, {}, keras.layers.Layer, argument="convolution")
        self.gate_residual = self._make_residual("gate_residual")
        self.convolution_residual = self._make_residual("convolution_residual")

    def build(self, inputs_shape: Shape) -> None:
        shape = self._build_streams(self.gate_residual, inputs_shape)
        self._build_sublayer(self.gate_residual, self.gate, shape)
        self._build_sublayer(self.convolution_residual, self.convolution, shape, shape)

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        padding_mask = implicit_mask(inputs) if padding_mask is None else padding_mask

        def convolve(x):
            return self.convolution(x, x, value_mask=padding_mask, training=training)

        def run(x):
            x = self._apply_residual(self.gate_residual, self.gate, self._split_streams(x), padding_mask, training)
            x = self._apply_residual(self.convolution_residual, convolve, x, padding_mask, training)
            return self._merge_streams(x, padding_mask, training)

        return self._run(run, inputs, training=training)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "gate": serialize(self.gate),
            "convolution": serialize(self.convolution),
        }
