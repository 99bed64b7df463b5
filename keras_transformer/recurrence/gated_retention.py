"""Gated retention: retention with a data-dependent decay."""

from __future__ import annotations

from typing import Unpack

from keras import ops

from keras_transformer.layers.projection import token_projection
from keras_transformer.recurrence.retention import MultiScaleRetention
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Config, Initializer, LayerOptions, Shape


@serializable
class GatedRetention(MultiScaleRetention):
    """Gated retention: `(activation(X W_g) * norm(Y)) W_o`, where each head computes `y_t = q_t Σ_{s <= t} (Π_{s < i <= t}
    γ_i) k_sᵀ v_s`.

    `γ_t = sigmoid(x_t W_γ)^(1 / temperature)`, one for each head: the decay depends on the token, where
    `MultiScaleRetention` has a constant. The three forms, the cost and the state are those of `MultiScaleRetention`.

    Args:
        num_heads: int >= 1. N.
        key_dim: even int >= 2. Width of each query and key head.
        value_dim: int >= 1, or None for `2 * key_dim`. Width of each value head.
        chunk_size: int >= 1. C. Defaults to 128. It changes only the cost.
        activation: activation of the output gate. Defaults to "silu".
        max_wavelength: float > 0. Wavelength of the slowest pair of features. Defaults to 10000.
        epsilon: float > 0. Added to the mean square in the norm. Defaults to 1e-6.
        use_bias: bool. Whether the projections, including W_γ, have biases. Defaults to False.
        kernel_initializer: initializer of the projections.
        temperature: float > 0. Larger values make the state decay more slowly. Defaults to 16.

    Call arguments: see `Recurrence`.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is "state" `(B, N, key_dim, value_dim)`, float32.

    Raises:
        ValueError: odd `key_dim`; a call that is not causal; scores, an `attention_mask`, or cross-attention.

    Padding does not change the state. Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = GatedRetention(num_heads=2, key_dim=4)
    >>> output, cache = layer(np.ones((1, 3, 8)), cache=layer.init_cache(batch_size=1), cache_index=0)
    >>> tuple(output.shape), tuple(cache["state"].shape)
    ((1, 3, 8), (1, 2, 4, 8))

    Reference: Sun et al., You Only Cache Once, arXiv 2405.05254, section 3 (gRet). Rotation and norms are those of
    `MultiScaleRetention`, as in the authors' code.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        chunk_size: int = 128,
        activation: Activation = "silu",
        max_wavelength: float = 10000.0,
        epsilon: float = 1e-6,
        use_bias: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        temperature: float = 16.0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            num_heads,
            key_dim,
            value_dim,
            chunk_size,
            activation,
            max_wavelength,
            epsilon,
            use_bias,
            kernel_initializer,
            **kwargs,
        )
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0. Received: {temperature}")
        self.temperature = float(temperature)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        super().build(query_shape, value_shape, key_shape)
        self.decay_dense = token_projection(self, "decay", self.num_heads, self.use_bias)
        self.decay_dense.build(query_shape)

    def _log_decay(self, x):
        """Returns log γ of each head at each token, float32 `(B, T, N)`."""
        return ops.log_sigmoid(ops.cast(self.decay_dense(x), "float32")) / self.temperature

    def get_config(self) -> Config:
        return {**super().get_config(), "temperature": self.temperature}
