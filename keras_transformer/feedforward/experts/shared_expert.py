"""Mixture of experts beside an expert that every token passes through."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.feedforward.experts.mixture_of_experts import MixtureOfExperts
from keras_transformer.feedforward.gated import GatedFeedForward
from keras_transformer.utils.serialization import build_once, clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class SharedExpertMixture(keras.layers.Layer):
    """Mixture of experts with a shared expert: `experts(x) + sigmoid(x w) · shared(x)`, or `experts(x) + shared(x)`.

    Args:
        experts: `MixtureOfExperts` or its config.
        shared: int: the hidden width of a `GatedFeedForward`; or a feed-forward layer or its config.
        use_gate: bool. Whether the shared expert has a gate. Defaults to True.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, False for padding, or None; see `MixtureOfExperts`.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: `experts` is not a `MixtureOfExperts`.

    Losses and logs: those of `experts`.

    Export: all three formats.

    Example:

    >>> import numpy as np
    >>> layer = SharedExpertMixture(MixtureOfExperts(4, router=3), shared=8)
    >>> tuple(layer(np.ones((1, 2, 6), "float32")).shape)
    (1, 2, 6)

    Reference: Qwen Team, Qwen1.5-MoE, 2024, and Yang et al., Qwen2, arXiv 2407.10671, section 2.2.2; the gate of the shared
    expert is that of the code of Qwen. Dai et al., DeepSeekMoE, arXiv 2401.06066, section 3.2, has no gate; several shared
    experts are one of the sum of their widths.
    """

    def __init__(
        self, experts: LayerLike, shared: int | LayerLike, use_gate: bool = True, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.experts = clone(resolve(experts, {}, MixtureOfExperts, argument="experts"), name="experts")
        shared = GatedFeedForward(shared) if isinstance(shared, int) else shared
        self.shared = clone(resolve(shared, {}, keras.layers.Layer, argument="shared"), name="shared")
        self.use_gate = use_gate
        gate = {"use_bias": False, "name": "shared_gate", "dtype": self.dtype_policy}
        self.shared_gate = keras.layers.Dense(1, **gate) if use_gate else None
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        for layer in (self.experts, self.shared, self.shared_gate):
            if layer is not None:
                build_once(layer, input_shape)

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None, training: bool | None = None) -> Tensor:
        routed = self.experts(inputs, padding_mask=padding_mask, training=training)
        shared = self.shared(inputs, training=training)
        return routed + (shared if self.shared_gate is None else ops.sigmoid(self.shared_gate(inputs)) * shared)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "experts": serialize(self.experts),
            "shared": serialize(self.shared),
            "use_gate": self.use_gate,
        }
