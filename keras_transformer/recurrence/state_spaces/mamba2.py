"""Mamba-2: a state space model whose decay, writes and reads depend on the token."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.token_mixer import zero_masked
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.projection import token_projection
from keras_transformer.recurrence.decayed_products import decayed_products
from keras_transformer.recurrence.mixer import Recurrence
from keras_transformer.recurrence.selective_decay import SelectiveDecay
from keras_transformer.recurrence.short_convolution import ShortConvolution
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Cache, Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class Mamba2(Recurrence):
    """State space duality: `norm((Y + d V) * silu(X W_z)) W_o`, where each head computes `y_t = c_t S_t`,
    `S_t = exp(-A Δ_t) S_{t - 1} + Δ_t b_tᵀ v_t`.

    v, b and c are `activation(conv(X W))` with a short causal convolution, and `Δ_t = softplus(x_t W_Δ + b_Δ)`. The chunked
    form is the recurrent form for one token. Time grows with `T · (C + state_dim) · head_dim` for each head, memory with
    `T · C`, for chunks of C tokens. The states are computed in float32 under every dtype policy.

    Args:
        num_heads: int >= 1. N.
        head_dim: int >= 1. Width of v in each head.
        state_dim: int >= 1. Width of b and c. Defaults to 128.
        num_groups: int, a divisor of N. Number of different b and c, which consecutive heads share, and of groups of the
            norm. Defaults to 1.
        kernel_size: int >= 2. Tokens of the convolution. Defaults to 4.
        chunk_size: int >= 1. C. Defaults to 128. It changes only the cost.
        use_bias: bool. Whether the projections have biases. Defaults to False.
        use_convolution_bias: bool. Whether the convolution has a bias. Defaults to True.
        activation: activation after the convolution. Defaults to "silu".
        epsilon: float > 0. Added to the mean square in the norm. Defaults to 1e-5.
        kernel_initializer: initializer of the projections and of the convolution.

    Call arguments: see `Recurrence`; `positions` are not read.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is "state" `(B, N, state_dim, head_dim)` and "recent"
        `(B, kernel_size - 1, channels of v, b and c)`, float32.

    Raises:
        ValueError: `num_groups` does not divide `num_heads`; `kernel_size` below 2; a call that is not causal; scores, an
            `attention_mask`, or cross-attention.

    Padding does not change the state. Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = Mamba2(num_heads=4, head_dim=4, state_dim=6)
    >>> output, cache = layer(np.ones((1, 3, 8)), cache=layer.init_cache(batch_size=1), cache_index=0)
    >>> tuple(output.shape), tuple(cache["state"].shape)
    ((1, 3, 8), (1, 4, 6, 4))

    Reference: Dao and Gu, Transformers are SSMs, arXiv 2405.21060, sections 6 and 7. Deviation: A and b_Δ start at evenly
    spread values, where the authors' code draws them from the same ranges.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        state_dim: int = 128,
        num_groups: int = 1,
        kernel_size: int = 4,
        chunk_size: int = 128,
        use_bias: bool = False,
        use_convolution_bias: bool = True,
        activation: Activation = "silu",
        epsilon: float = 1e-5,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.head_dim = positive("head_dim", head_dim)
        self.state_dim = positive("state_dim", state_dim)
        self.num_groups = positive("num_groups", num_groups)
        if num_heads % num_groups:
            raise ValueError(f"num_groups must divide num_heads={num_heads}. Received: {num_groups}")
        self.kernel_size = kernel_size
        self.chunk_size = positive("chunk_size", chunk_size)
        self.use_bias = use_bias
        self.use_convolution_bias = use_convolution_bias
        self.activation = get_activation(activation)
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.convolution = ShortConvolution(
            kernel_size,
            use_bias=use_convolution_bias,
            kernel_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name="convolution",
        )
        self.decay = SelectiveDecay(name="decay", dtype="float32")

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        values, states = self.num_heads * self.head_dim, self.num_groups * self.state_dim
        widths = {"gate": values, "value": values, "key": states, "query": states, "step": self.num_heads}
        for name, width in widths.items():
            dense = token_projection(self, name, width, self.use_bias)
            dense.build(query_shape)
            setattr(self, f"{name}_dense", dense)
        self.convolution.build((*query_shape[:2], values + 2 * states))
        self.decay.build((*query_shape[:2], self.num_heads))
        self.skip = self.add_weight(name="skip", shape=(self.num_heads,), initializer="ones")
        self.norm_scale = self.add_weight(name="norm_scale", shape=(values,), initializer="ones")
        self.output_dense = token_projection(self, "output", query_shape[-1], self.use_bias)
        self.output_dense.build((*query_shape[:2], values))

    def scan(self, x: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        cache = cache or {}
        mixed = ops.concatenate([self.value_dense(x), self.key_dense(x), self.query_dense(x)], axis=2)
        mixed = zero_masked(mixed, mask) if self.use_bias else mixed
        mixed, recent = self.convolution(mixed, mask=mask, before=cache.get("recent"))
        mixed = ops.cast(self.activation(mixed), "float32")
        values, states = self.num_heads * self.head_dim, self.num_groups * self.state_dim
        value = self._split(mixed[:, :, :values], self.num_heads)
        key = self._split(mixed[:, :, values : values + states], self.num_groups)
        query = self._split(mixed[:, :, values + states :], self.num_groups)
        steps, log_decay = self.decay(self.step_dense(x))
        written = value * ops.expand_dims(steps, 3)
        y, state = decayed_products(query, key, written, log_decay, self.chunk_size, mask, cache.get("state"))
        y = y + value * ops.reshape(ops.cast(self.skip, "float32"), (1, 1, -1, 1))
        return self.output_dense(ops.cast(self._gated_norm(y, self.gate_dense(x)), x.dtype)), {
            "state": state,
            "recent": recent,
        }

    def _gated_norm(self, y, gate):
        """Returns the heads `(B, T, N, head_dim)`, gated and then normalized by group, as `(B, T, N · head_dim)`."""
        length, values = ops.shape(y)[1], self.num_heads * self.head_dim
        y = ops.reshape(y, (-1, length, values)) * ops.silu(ops.cast(gate, "float32"))
        y = ops.reshape(y, (-1, length, self.num_groups, values // self.num_groups))
        y = ops.rms_normalization(y, axis=-1, epsilon=self.epsilon)
        return ops.reshape(y, (-1, length, values)) * ops.cast(self.norm_scale, "float32")

    def _split(self, x, count):
        return ops.reshape(x, (-1, ops.shape(x)[1], count, x.shape[2] // count))

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: str | None = None) -> Cache:
        """Returns an empty state. Its size does not depend on `max_length`. It is float32, as a sum of many terms."""
        channels = self.num_heads * self.head_dim + 2 * self.num_groups * self.state_dim
        shapes = {"state": (self.num_heads, self.state_dim, self.head_dim), "recent": (self.kernel_size - 1, channels)}
        return {name: ops.zeros((batch_size, *shape), dtype="float32") for name, shape in shapes.items()}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "state_dim": self.state_dim,
            "num_groups": self.num_groups,
            "kernel_size": self.kernel_size,
            "chunk_size": self.chunk_size,
            "use_bias": self.use_bias,
            "use_convolution_bias": self.use_convolution_bias,
            "activation": keras.activations.serialize(self.activation),
            "epsilon": self.epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
