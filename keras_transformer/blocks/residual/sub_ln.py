"""Sub-LN: pre-norm with weights that start as deep stacks need them."""

import math

from keras_transformer.blocks.residual.deep_norm import scale_kernels
from keras_transformer.blocks.residual.residual import PreNormResidual
from keras_transformer.utils.serialization import serializable


@serializable
class SubLNResidual(PreNormResidual):
    """`x + f(norm(x))`, where the kernels of values and outputs in f start γ times as large.

    The other half of sub-LN is a second norm inside each sublayer, before its output projection: `context_norm` of
    `MultiHeadAttention`, and `hidden_norm` of the feed-forward. `models.Kosmos` has all of it.

    Args:
        gain: float > 0. γ, for weights that this block builds; those of a layer that is built already stay as they are.
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy.
        stochastic_depth: float in [0, 1). See `Residual`.
        seed: int or None. Of the rows that are left out.

    Raises:
        ValueError: `gain` not above 0.

    Example:

    >>> round(SubLNResidual.of_stack(num_layers=24).gain, 4)
    1.9675

    Reference: Wang et al., Foundation Transformers (Magneto), arXiv 2210.06423, figure 2 and section 2.
    """

    def __init__(self, gain=1.0, norm="layer_norm", stochastic_depth=0.0, seed=None, **kwargs):
        super().__init__(norm, stochastic_depth, seed, **kwargs)
        if not gain > 0:
            raise ValueError(f"gain must be above 0. Received: {gain!r}")
        self.gain = gain

    @classmethod
    def of_stack(cls, num_layers, norm="layer_norm"):
        """For an encoder alone, or a decoder alone, of `num_layers` blocks."""
        return cls(math.sqrt(math.log(2 * num_layers)), norm)

    @classmethod
    def of_encoder(cls, num_layers, num_decoder_layers, norm="layer_norm"):
        """For the encoder of an encoder-decoder."""
        return cls(math.sqrt(math.log(3 * num_decoder_layers) * math.log(2 * num_layers) / 3), norm)

    @classmethod
    def of_decoder(cls, num_layers, norm="layer_norm"):
        """For the decoder of an encoder-decoder: `num_layers` are its own."""
        return cls(math.sqrt(math.log(3 * num_layers)), norm)

    def initialize_sublayer(self, sublayer):
        scale_kernels(sublayer, self.gain)

    def get_config(self):
        return {**super().get_config(), "gain": self.gain}
