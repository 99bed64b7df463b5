"""Kimi Delta Attention: the gated delta rule with a decay per channel."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.projection import token_projection
from keras_transformer.recurrence.delta.channel_delta_products import channel_delta_products
from keras_transformer.recurrence.delta.delta_recurrence import DeltaRecurrence
from keras_transformer.recurrence.heads import float_heads
from keras_transformer.recurrence.selective_decay import SelectiveDecay
from keras_transformer.recurrence.short_convolution import ShortConvolution
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Cache, Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class KimiDeltaAttention(DeltaRecurrence):
    """Kimi Delta Attention: `(sigmoid(X W_g W_h) * norm(Y)) W_o`, where each head computes `y_t = q_t S_t`,
    `S_t = (I - β_t k_t k_tᵀ) diag(α_t) S_{t - 1} + β_t k_t v_tᵀ`.

    q, k and v are `activation(conv(X W))` with a short causal convolution; q and k have length 1, and q is scaled by
    `1 / √key_dim`. `β_t = sigmoid(x_t W_β)`, one for each head, and `α_t = exp(-A softplus(x_t W_α W_c + b))`, one for each
    channel of k, where `GatedDeltaNet` has one for each head. The chunked form is the recurrent form for one token, and
    consists of matrix products otherwise. Time grows with `T · (C · (C + key_dim + value_dim) + key_dim · value_dim)` for
    each head, memory with `T · (C + key_dim · log C + value_dim)` and `T / C · key_dim · value_dim`, for chunks of C
    tokens. The rule is computed in float32 under every dtype policy.

    Args:
        num_heads: int >= 1. N.
        key_dim: int >= 1. Width of each query and key head.
        value_dim: int >= 1, or None for `key_dim`. Width of each value head.
        gate_rank: int >= 1, or None for `value_dim`. Width between W_g and W_h, and between W_α and W_c.
        kernel_size: int >= 2. Tokens of the convolution. Defaults to 4.
        chunk_size: int >= 1. C, which is rounded up to a power of two. Defaults to 64. It changes only the cost.
        activation: activation after the convolution. Defaults to "silu".
        epsilon: float > 0. Added to the mean square in the norm. Defaults to 1e-5.
        kernel_initializer: initializer of the projections and of the convolution.

    Call arguments: see `Recurrence`; `positions` are not read.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is "state" `(B, N, key_dim, value_dim)` and "recent"
        `(B, kernel_size - 1, channels of q, k and v)`, float32.

    Raises:
        ValueError: `kernel_size` below 2; a call that is not causal; scores, an `attention_mask`, or cross-attention.

    Padding does not change the state. Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = KimiDeltaAttention(num_heads=2, key_dim=4)
    >>> x = np.random.default_rng(0).normal(size=(1, 5, 8)).astype("float32")
    >>> whole, state, outputs = layer(x, x), layer.init_cache(batch_size=1), []
    >>> for index in range(5):
    ...     output, state = layer(x[:, index : index + 1], cache=state, cache_index=index)
    ...     outputs.append(output)
    >>> bool(np.allclose(np.concatenate(outputs, axis=1), whole, atol=1e-5))
    True

    Reference: Kimi Team, Kimi Linear, arXiv 2510.26692, equations 1 and 10. Deviations: A and b start at evenly spread
    values, where the authors' code draws them from the same ranges; `value_dim` and `gate_rank` may differ from `key_dim`.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        gate_rank: int | None = None,
        kernel_size: int = 4,
        chunk_size: int = 64,
        activation: Activation = "silu",
        epsilon: float = 1e-5,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = self.num_key_heads = positive("num_heads", num_heads)
        self.key_dim = positive("key_dim", key_dim)
        self.value_dim = key_dim if value_dim is None else positive("value_dim", value_dim)
        self.gate_rank = self.value_dim if gate_rank is None else positive("gate_rank", gate_rank)
        self.kernel_size = kernel_size
        self.chunk_size = positive("chunk_size", chunk_size)
        self.activation = get_activation(activation)
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.convolution = ShortConvolution(
            kernel_size, kernel_initializer=self.kernel_initializer, dtype=self.dtype_policy, name="convolution"
        )
        self.decay = SelectiveDecay(key_dim, name="decay", dtype="float32")

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        width, keys, values = query_shape[-1], self.num_heads * self.key_dim, self.num_heads * self.value_dim
        widths = {
            "query": (width, keys),
            "key": (width, keys),
            "value": (width, values),
            "rate": (width, self.num_heads),
            "step_input": (width, self.gate_rank),
            "step": (self.gate_rank, keys),
            "gate_input": (width, self.gate_rank),
            "gate": (self.gate_rank, values),
            "output": (values, width),
        }
        for name, (inputs, outputs) in widths.items():
            dense = token_projection(self, name, outputs, use_bias=False)
            dense.build((*query_shape[:2], inputs))
            setattr(self, f"{name}_dense", dense)
        self.convolution.build((*query_shape[:2], 2 * keys + values))
        self.decay.build((*query_shape[:2], keys))
        self.norm_scale = self.add_weight(name="norm_scale", shape=(self.value_dim,), initializer="ones")

    def scan(self, x: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        cache = cache or {}
        query, key, value, recent = self._query_key_value(x, mask, cache)
        rate = ops.sigmoid(ops.cast(self.rate_dense(x), "float32"))
        log_decay = float_heads(self.decay(self.step_dense(self.step_input_dense(x)))[1], self.num_heads)
        y, state = channel_delta_products(
            query * self.key_dim**-0.5,
            key * ops.exp(log_decay),
            key * ops.expand_dims(rate, 3),
            value,
            log_decay,
            self.chunk_size,
            mask=mask,
            state=cache.get("state"),
        )
        y = self._normalized(y)
        y = y * ops.sigmoid(ops.cast(self.gate_dense(self.gate_input_dense(x)), "float32"))
        return self.output_dense(ops.cast(y, x.dtype)), {"state": state, "recent": recent}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "gate_rank": self.gate_rank,
            "kernel_size": self.kernel_size,
            "chunk_size": self.chunk_size,
            "activation": keras.activations.serialize(self.activation),
            "epsilon": self.epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
