"""Sub-LN: pre-norm with scaled initial weights for deep stacks."""

from __future__ import annotations

import math
from typing import Unpack

import keras

from keras_transformer.blocks.residual.deep_norm import scale_kernels
from keras_transformer.blocks.residual.residual import PreNormResidual
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerLike, LayerOptions


@serializable
class SubLNResidual(PreNormResidual):
    """Sub-LN: `x + f(norm(x))`, with the initial kernels of values and outputs in f scaled by γ.

    The other half of sub-LN is a second norm inside each sublayer, before its output projection: `context_norm` of
    `MultiHeadAttention` and `hidden_norm` of the feed-forward. `models.Kosmos` uses all of it.

    Args:
        gain: float > 0. γ. Scales the weights that the block builds; layers that are already built keep theirs.
        norm: a name in `NORMS`, or a norm layer to copy.
        stochastic_depth: float in [0, 1). See `Residual`.
        seed: int or None. Seed of the stochastic depth.

    Raises:
        ValueError: `gain` not above 0.

    Example:

    >>> round(SubLNResidual.of_stack(num_layers=24).gain, 4)
    1.9675

    Reference: Wang et al., Foundation Transformers (Magneto), arXiv 2210.06423, figure 2 and section 2.
    """

    def __init__(
        self,
        gain: float = 1.0,
        norm: LayerLike = "layer_norm",
        stochastic_depth: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(norm, stochastic_depth, seed, **kwargs)
        if not gain > 0:
            raise ValueError(f"gain must be above 0. Received: {gain!r}")
        self.gain = gain

    @classmethod
    def of_stack(cls, num_layers: int, norm: LayerLike = "layer_norm") -> SubLNResidual:
        """Returns the scheme of an encoder-only or decoder-only stack of `num_layers` blocks."""
        return cls(math.sqrt(math.log(2 * num_layers)), norm)

    @classmethod
    def of_encoder(cls, num_layers: int, num_decoder_layers: int, norm: LayerLike = "layer_norm") -> SubLNResidual:
        """Returns the scheme of the encoder of an encoder-decoder."""
        return cls(math.sqrt(math.log(3 * num_decoder_layers) * math.log(2 * num_layers) / 3), norm)

    @classmethod
    def of_decoder(cls, num_layers: int, norm: LayerLike = "layer_norm") -> SubLNResidual:
        """Returns the scheme of the decoder, of `num_layers` blocks, of an encoder-decoder."""
        return cls(math.sqrt(math.log(3 * num_layers)), norm)

    def initialize_sublayer(self, sublayer: keras.layers.Layer) -> None:
        scale_kernels(sublayer, self.gain)

    def get_config(self) -> Config:
        return {**super().get_config(), "gain": self.gain}
