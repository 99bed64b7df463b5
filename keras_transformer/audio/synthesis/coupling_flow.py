"""Coupling layers between the prior of the text and the latents of speech."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.synthesis.arguments import check_counts
from keras_transformer.audio.synthesis.wave_net import WaveNet
from keras_transformer.layers.hide_padding import hide_padding
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class CouplingFlow(keras.layers.Layer):
    """Inverse of a residual coupling layer: `(u, v)` becomes `(u, v - f(u))`, with a WaveNet inside f.

    The channels are reversed first, so that a stack of these layers changes all of them.

    Args:
        hidden_dim: int >= 1. Channels of the WaveNet. Default 192.
        wave_net: `WaveNet` to copy, or its config; None for `WaveNet()`.

    Call arguments:
        inputs: float `(B, T, C)`, C even.
        padding_mask: boolean `(B, T)`, True = a real frame; None for all real.
        speaker: float `(B, S)`: the vector of the speaker; None for none.

    Returns:
        `(B, T, C)`; of its channels, the second half is 0 at padding.

    Raises:
        ValueError: an odd number of channels; an argument out of its range.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> flow = CouplingFlow(8, WaveNet(1, kernel_size=3))
    >>> tuple(flow(np.zeros((1, 5, 4), "float32")).shape)
    (1, 5, 4)

    Reference: Kim et al., VITS, arXiv 2106.06103, section 2.1.3; Dinh et al., NICE, arXiv 1410.8516, section 3.2.
    """

    def __init__(
        self, hidden_dim: int = 192, wave_net: LayerLike | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        check_counts(hidden_dim=hidden_dim)
        self.hidden_dim = hidden_dim
        self.wave_net = resolve(WaveNet() if wave_net is None else wave_net, {}, WaveNet, argument="wave_net")
        self._wave_net = clone(self.wave_net, name="wave_net", dtype=self.dtype_policy)

    def build(self, inputs_shape: Shape, speaker_shape: Shape | None = None) -> None:
        *leading, width = inputs_shape
        if width % 2:
            raise ValueError(f"{self.name} needs an even number of channels. Received: {width}")
        hidden = (*leading, self.hidden_dim)
        self._first_dense = keras.layers.Dense(self.hidden_dim, dtype=self.dtype_policy, name="first_dense")
        self._first_dense.build((*leading, width // 2))
        self._wave_net.build(hidden, speaker_shape)
        self._last_dense = keras.layers.Dense(width // 2, dtype=self.dtype_policy, name="last_dense")
        self._last_dense.build(hidden)

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        speaker: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        kept, changed = ops.split(ops.flip(inputs, axis=-1), 2, axis=-1)
        hidden = hide_padding(self._first_dense(kept), padding_mask)
        hidden = self._wave_net(hidden, padding_mask=padding_mask, speaker=speaker, training=training)
        changed = hide_padding(changed - self._last_dense(hidden), padding_mask)
        return ops.concatenate([kept, changed], axis=-1)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "hidden_dim": self.hidden_dim, "wave_net": serialize(self.wave_net)}
