"""WaveNet's gated convolutions."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.synthesis.arguments import check_counts, check_odd
from keras_transformer.audio.synthesis.speaker import speaker_projection
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.hide_padding import hide_padding
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class WaveNet(keras.layers.Layer):
    """Non-causal WaveNet: gated dilated convolutions, `tanh(a) sigmoid(b)`, each with a residual and a skip output.

    The output is the sum of the skip outputs. The last convolution has no residual output.

    Args:
        num_layers: int >= 1. Default 4.
        kernel_size: odd int. Default 5.
        dilation_rate: int >= 1. Convolution i has the dilation `dilation_rate^i`. Default 1.
        dropout: float in [0, 1). Of the gated values. Default 0.
        seed: int or None. Seed of the dropout.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real frame; None for all real. The inputs must be 0 at padding.
        speaker: float `(B, S)`: the vector of the speaker, which is projected to a term of each gate; None for none.

    Returns:
        `(B, T, D)`, 0 at padding.

    Raises:
        ValueError: an argument out of its range.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> tuple(WaveNet(2, kernel_size=3)(np.zeros((1, 5, 4), "float32")).shape)
    (1, 5, 4)

    Reference: van den Oord et al., WaveNet, arXiv 1609.03499, section 2; as in Prenger et al., WaveGlow, arXiv 1811.00002.
    The published code trains the norms of the kernels as weights of their own (weight normalization); here the kernel is one
    weight, and `checkpoints` converts between them.
    """

    def __init__(
        self,
        num_layers: int = 4,
        kernel_size: int = 5,
        dilation_rate: int = 1,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_counts(num_layers=num_layers, dilation_rate=dilation_rate)
        check_odd(kernel_size=kernel_size)
        self.num_layers = num_layers
        self.kernel_size = kernel_size
        self.dilation_rate = dilation_rate
        self.dropout = dropout
        self.seed = seed
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, inputs_shape: Shape, speaker_shape: Shape | None = None) -> None:
        policy, width = {"dtype": self.dtype_policy}, inputs_shape[-1]
        self._gates, self._outputs = [], []
        for index in range(self.num_layers):
            self._gates.append(
                keras.layers.Conv1D(
                    2 * width,
                    self.kernel_size,
                    padding="same",
                    dilation_rate=self.dilation_rate**index,
                    name=f"gate_{index}",
                    **policy,
                )
            )
            is_last = index == self.num_layers - 1
            self._outputs.append(keras.layers.Dense(width if is_last else 2 * width, name=f"output_{index}", **policy))
        for layer in (*self._gates, *self._outputs):
            layer.build(tuple(inputs_shape))
        self._speaker = speaker_projection(2 * width * self.num_layers, speaker_shape, self.dtype_policy)

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        speaker: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        x, skipped, width = inputs, [], inputs.shape[-1]
        terms = [None] * self.num_layers
        if speaker is not None:
            terms = ops.split(ops.expand_dims(self._speaker(speaker), 1), self.num_layers, axis=-1)
        for gate, output, term in zip(self._gates, self._outputs, terms, strict=True):
            hidden = gate(x) if term is None else gate(x) + term
            hidden = ops.tanh(hidden[..., :width]) * ops.sigmoid(hidden[..., width:])
            hidden = output(self._dropout_layer(hidden, training=training))
            if hidden.shape[-1] > width:
                x, hidden = hide_padding(x + hidden[..., :width], padding_mask), hidden[..., width:]
            skipped.append(hidden)
        return hide_padding(sum(skipped[1:], start=skipped[0]), padding_mask)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        names = ("num_layers", "kernel_size", "dilation_rate", "dropout", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
