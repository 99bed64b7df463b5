"""Predictors of the durations of tokens."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.audio.synthesis.arguments import check_counts, check_odd
from keras_transformer.audio.synthesis.depth_separable_convolutions import DepthSeparableConvolutions
from keras_transformer.audio.synthesis.duration_flows import AffineFlow, ConvolutionFlow
from keras_transformer.audio.synthesis.speaker import add_speaker, speaker_projection
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.hide_padding import hide_padding
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class DurationPredictor(keras.layers.Layer):
    """Duration predictor: two convolutions, each with ReLU, a norm and dropout, and a projection to log durations.

    Args:
        hidden_dim: int >= 1. Channels of the convolutions. Default 256.
        kernel_size: odd int. Default 3.
        dropout: float in [0, 1). Default 0.
        layer_norm_epsilon: float > 0. Default 1e-5.
        seed: int or None. Seed of the dropout.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token; None for all real.
        speaker: float `(B, S)`: the vector of the speaker, whose projection is added to the inputs; None for none.

    Returns:
        Log durations in frames, `(B, T)`.

    Raises:
        ValueError: an argument out of its range.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> tuple(DurationPredictor(6)(np.zeros((1, 5, 4), "float32")).shape)
    (1, 5)

    Reference: Kim et al., Glow-TTS, arXiv 2005.11129, section 3.3; VITS, arXiv 2106.06103, without its noise.
    """

    takes_noise = False

    def __init__(
        self,
        hidden_dim: int = 256,
        kernel_size: int = 3,
        dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-5,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_counts(hidden_dim=hidden_dim)
        check_odd(kernel_size=kernel_size)
        self.hidden_dim = hidden_dim
        self.kernel_size = kernel_size
        self.dropout = dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.seed = seed
        self._dropout_layer = Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, inputs_shape: Shape, speaker_shape: Shape | None = None) -> None:
        policy, hidden = {"dtype": self.dtype_policy}, (*inputs_shape[:-1], self.hidden_dim)
        self._convolutions, self._norms = [], []
        for index in range(2):
            self._convolutions.append(
                keras.layers.Conv1D(
                    self.hidden_dim, self.kernel_size, padding="same", name=f"convolution_{index}", **policy
                )
            )
            self._convolutions[-1].build(hidden if index else tuple(inputs_shape))
            norm = LayerNormalization(epsilon=self.layer_norm_epsilon, name=f"norm_{index}", **policy)
            norm.build(hidden)
            self._norms.append(norm)
        self._log_durations = keras.layers.Dense(1, name="log_durations", **policy)
        self._log_durations.build(hidden)
        self._speaker = speaker_projection(inputs_shape[-1], speaker_shape, self.dtype_policy)

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        speaker: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        x = add_speaker(inputs, self._speaker, speaker)
        for convolution, norm in zip(self._convolutions, self._norms, strict=True):
            x = norm(ops.relu(convolution(hide_padding(x, padding_mask))))
            x = self._dropout_layer(x, training=training)
        return self._log_durations(x)[..., 0]

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return tuple(inputs_shape[:2])

    def get_config(self) -> Config:
        names = ("hidden_dim", "kernel_size", "dropout", "layer_norm_epsilon", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@serializable
class StochasticDurationPredictor(keras.layers.Layer):
    """Stochastic duration predictor: a flow from noise to log durations, conditioned on the tokens.

    Noise of two channels passes through inverses of spline flows and of an affine flow, with the channels swapped in
    between; the first channel is the log duration. Only this direction, of synthesis, is here: there is no likelihood.

    Args:
        flow: `ConvolutionFlow` to copy, or its config; None for `ConvolutionFlow(DepthSeparableConvolutions())`.
        num_flows: int >= 0. Spline flows. Default 3: VITS trains one more, which synthesis leaves out.
        noise_scale: float >= 0. What the noise is multiplied by. Default 0.8.
        dropout: float in [0, 1). Of the convolutions over the tokens, which are those of the flow otherwise. Default 0.
        seed: int or None. Seed of the dropout.

    Call arguments:
        inputs: float `(B, T, D)`.
        noise: float `(B, T, 2)`, standard normal.
        padding_mask: boolean `(B, T)`, True = a real token; None for all real.
        speaker: float `(B, S)`: the vector of the speaker, whose projection is added to the inputs; None for none.

    Returns:
        Log durations in frames, `(B, T)`.

    Raises:
        ValueError: an argument out of its range.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> predictor = StochasticDurationPredictor(num_flows=1)
    >>> tokens, noise = np.zeros((1, 5, 4), "float32"), np.zeros((1, 5, 2), "float32")
    >>> tuple(predictor(tokens, noise=noise).shape)
    (1, 5)

    Reference: Kim et al., VITS, arXiv 2106.06103, section 2.2.2 and appendix A.
    """

    takes_noise = True

    def __init__(
        self,
        flow: LayerLike | None = None,
        num_flows: int = 3,
        noise_scale: float = 0.8,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(num_flows, bool) or not isinstance(num_flows, int) or num_flows < 0 or noise_scale < 0:
            raise ValueError(
                f"num_flows must be an int, and neither it nor noise_scale negative. Received: {num_flows!r}, "
                f"{noise_scale!r}"
            )
        flow = ConvolutionFlow(DepthSeparableConvolutions()) if flow is None else flow
        self.flow = resolve(flow, {}, ConvolutionFlow, argument="flow")
        self.num_flows = num_flows
        self.noise_scale = noise_scale
        self.dropout = dropout
        self.seed = seed
        policy = {"dtype": self.dtype_policy}
        options = {"name": "convolutions", "dropout": dropout, "seed": seed, **policy}
        self._convolutions = clone(self.flow.convolutions, **options)
        self._flows = [clone(self.flow, name=f"flow_{index}", **policy) for index in range(num_flows)]
        self._affine = AffineFlow(name="affine", **policy)

    def build(self, inputs_shape: Shape, noise_shape: Shape, speaker_shape: Shape | None = None) -> None:
        shape, policy = tuple(inputs_shape), self.dtype_policy
        self._first_dense, self._last_dense = (
            keras.layers.Dense(shape[-1], dtype=policy, name=f"{name}_dense") for name in ("first", "last")
        )
        for layer in (self._first_dense, self._last_dense, self._convolutions):
            layer.build(shape)
        for flow in self._flows:
            flow.build((*shape[:-1], 2), shape)
        self._affine.build((*shape[:-1], 2))
        self._speaker = speaker_projection(shape[-1], speaker_shape, policy)

    def call(
        self,
        inputs: Tensor,
        noise: Tensor,
        padding_mask: Tensor | None = None,
        speaker: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        x = add_speaker(self._first_dense(inputs), self._speaker, speaker)
        x = self._last_dense(self._convolutions(x, padding_mask=padding_mask, training=training))
        condition = hide_padding(x, padding_mask)
        latents = noise * self.noise_scale
        for flow in reversed(self._flows):
            latents = flow(ops.flip(latents, axis=-1), condition, padding_mask=padding_mask)
        return self._affine(ops.flip(latents, axis=-1), padding_mask=padding_mask)[..., 0]

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return tuple(inputs_shape[:2])

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "flow": serialize(self.flow),
            "num_flows": self.num_flows,
            "noise_scale": self.noise_scale,
            "dropout": self.dropout,
            "seed": self.seed,
        }
