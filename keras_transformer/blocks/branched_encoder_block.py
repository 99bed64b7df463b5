"""What the encoder of the Evolved Transformer has in front of an ordinary block."""

import keras

from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.block import Block
from keras_transformer.utils.serialization import resolve, serializable, serialize


@serializable
class BranchedEncoderBlock(Block):
    """A residual scheme around a gate, and one around a convolution.

    With `residual="pre"`: `x = x + gate(norm(x))`, then `x = x + convolution(norm(x))`.

    Args:
        gate: a layer `(B, T, D)` to `(B, T, D)` that acts on each token, as `feedforward.GatedLinearUnit`, or its config.
        convolution: a mixer, as `attention.BranchedConvolution`, or its config.
        residual: a name in `RESIDUALS`, or an instance of `Residual`, of which the block makes copies. Default "pre".
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy; for a residual given by name.
        dropout: float in [0, 1). Of what each part gives, before it is added.
        seed: int or None. Of the dropout.
        recompute: bool. See `EncoderBlock`.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token; None for the mask that Keras carries, if any.

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

    Reference: So et al., The Evolved Transformer, arXiv 1901.11117, figure 3: the upper half of the encoder's cell.
    """

    def __init__(
        self, gate, convolution, residual="pre", norm="layer_norm", dropout=0.0, seed=None, recompute=False, **kwargs
    ):
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self.gate = resolve(gate, {}, keras.layers.Layer, argument="gate")
        self.convolution = resolve(convolution, {}, keras.layers.Layer, argument="convolution")
        self.gate_residual = self._make_residual("gate_residual")
        self.convolution_residual = self._make_residual("convolution_residual")

    def build(self, inputs_shape):
        shape = self._build_streams(self.gate_residual, inputs_shape)
        self._build_around(self.gate_residual, self.gate, shape)
        self._build_around(self.convolution_residual, self.convolution, shape, shape)

    def call(self, inputs, padding_mask=None, training=None):
        padding_mask = implicit_mask(inputs) if padding_mask is None else padding_mask

        def convolve(x):
            return self.convolution(x, x, value_mask=padding_mask, training=training)

        def run(x):
            x = self._around(self.gate_residual, self.gate, self._opened(x), padding_mask, training)
            x = self._around(self.convolution_residual, convolve, x, padding_mask, training)
            return self._closed(x, padding_mask, training)

        return self._run(run, inputs, training=training)

    def get_config(self):
        return {
            **super().get_config(),
            "gate": serialize(self.gate),
            "convolution": serialize(self.convolution),
        }
