"""Gated DeltaNet: linear attention whose state replaces what it holds for a key."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.projection import token_projection
from keras_transformer.recurrence.delta.delta_products import delta_products
from keras_transformer.recurrence.delta.delta_recurrence import DeltaRecurrence
from keras_transformer.recurrence.selective_decay import SelectiveDecay
from keras_transformer.recurrence.short_convolution import ShortConvolution
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Cache, Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class GatedDeltaNet(DeltaRecurrence):
    """Gated delta rule: `(silu(X W_g) * norm(Y)) W_o`, where each head computes `y_t = q_t S_t`,
    `S_t = α_t (I - β_t k_t k_tᵀ) S_{t - 1} + β_t k_t v_tᵀ`.

    q, k and v are `activation(conv(X W))` with a short causal convolution; q and k have length 1, and q is scaled by
    `1 / √key_dim`. `β_t = sigmoid(x_t W_β)`, and `α_t = exp(-A softplus(x_t W_α + b))`, one of each for each head. The
    chunked form is the recurrent form for one token, and consists of matrix products otherwise. Time grows with
    `T · (C · (C + key_dim + value_dim) + key_dim · value_dim)` for each head, memory with `T · (C + key_dim + value_dim)`
    and `T / C · key_dim · value_dim`, for chunks of C tokens. The rule is computed in float32 under every dtype policy.

    Args:
        num_heads: int >= 1. N, the number of value heads.
        key_dim: int >= 1. Width of each query and key head.
        value_dim: int >= 1, or None for `key_dim`. Width of each value head.
        num_key_heads: int, a divisor of N, or None for N. Number of query and key heads, shared by consecutive value
            heads.
        kernel_size: int >= 2. Tokens of the convolution. Defaults to 4.
        chunk_size: int >= 1. C. Defaults to 64. It changes only the cost.
        use_decay: bool. Whether the state decays; without, α is 1 (DeltaNet). Defaults to True.
        use_gate: bool. Whether there is an output gate; without, the output is `norm(Y) W_o` (DeltaNet). Defaults to True.
        activation: activation after the convolution. Defaults to "silu".
        epsilon: float > 0. Added to the mean square in the norm. Defaults to 1e-6.
        kernel_initializer: initializer of the projections and of the convolution.

    Call arguments: see `Recurrence`; `positions` are not read.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is "state" `(B, N, key_dim, value_dim)` and "recent"
        `(B, kernel_size - 1, channels of q, k and v)`, float32.

    Raises:
        ValueError: `num_key_heads` does not divide `num_heads`; `kernel_size` below 2; a call that is not causal; scores,
            an `attention_mask`, or cross-attention.

    Padding does not change the state. Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = GatedDeltaNet(num_heads=2, key_dim=4)
    >>> x = np.random.default_rng(0).normal(size=(1, 5, 8)).astype("float32")
    >>> whole, state, outputs = layer(x, x), layer.init_cache(batch_size=1), []
    >>> for index in range(5):
    ...     output, state = layer(x[:, index : index + 1], cache=state, cache_index=index)
    ...     outputs.append(output)
    >>> bool(np.allclose(np.concatenate(outputs, axis=1), whole, atol=1e-5))
    True

    Reference: Yang et al., Gated Delta Networks, arXiv 2412.06464, equation 10 and section 3.4; Yang et al., arXiv
    2406.06484, section 3.2 (DeltaNet and its chunked form). The state is the transpose of the papers'. Deviation: A and b
    start at evenly spread values, where the authors' code draws them from the same ranges.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        num_key_heads: int | None = None,
        kernel_size: int = 4,
        chunk_size: int = 64,
        use_decay: bool = True,
        use_gate: bool = True,
        activation: Activation = "silu",
        epsilon: float = 1e-6,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.key_dim = positive("key_dim", key_dim)
        self.value_dim = key_dim if value_dim is None else positive("value_dim", value_dim)
        self.num_key_heads = num_heads if num_key_heads is None else positive("num_key_heads", num_key_heads)
        if num_heads % self.num_key_heads:
            raise ValueError(f"num_key_heads must divide num_heads={num_heads}. Received: {num_key_heads}")
        self.kernel_size = kernel_size
        self.chunk_size = positive("chunk_size", chunk_size)
        self.use_decay = use_decay
        self.use_gate = use_gate
        self.activation = get_activation(activation)
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.convolution = ShortConvolution(
            kernel_size, kernel_initializer=self.kernel_initializer, dtype=self.dtype_policy, name="convolution"
        )
        self.decay = SelectiveDecay(name="decay", dtype="float32") if use_decay else None

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        keys, values = self.num_key_heads * self.key_dim, self.num_heads * self.value_dim
        widths = {"query": keys, "key": keys, "value": values, "rate": self.num_heads}
        widths |= {"gate": values} if self.use_gate else {}
        widths |= {"step": self.num_heads} if self.use_decay else {}
        for name, width in widths.items():
            dense = token_projection(self, name, width, use_bias=False)
            dense.build(query_shape)
            setattr(self, f"{name}_dense", dense)
        self.convolution.build((*query_shape[:2], 2 * keys + values))
        if self.decay is not None:
            self.decay.build((*query_shape[:2], self.num_heads))
        self.norm_scale = self.add_weight(name="norm_scale", shape=(self.value_dim,), initializer="ones")
        self.output_dense = token_projection(self, "output", query_shape[-1], use_bias=False)
        self.output_dense.build((*query_shape[:2], values))

    def scan(self, x: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        cache = cache or {}
        query, key, value, recent = self._query_key_value(x, mask, cache)
        rate = ops.sigmoid(ops.cast(self.rate_dense(x), "float32"))
        y, state = delta_products(
            query * self.key_dim**-0.5,
            key,
            value,
            rate,
            None if self.decay is None else self.decay(self.step_dense(x))[1],
            self.chunk_size,
            mask,
            cache.get("state"),
        )
        y = self._normalized(y)
        if self.use_gate:
            y = y * ops.silu(ops.cast(self.gate_dense(x), "float32"))
        return self.output_dense(ops.cast(y, x.dtype)), {"state": state, "recent": recent}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "num_key_heads": self.num_key_heads,
            "kernel_size": self.kernel_size,
            "chunk_size": self.chunk_size,
            "use_decay": self.use_decay,
            "use_gate": self.use_gate,
            "activation": keras.activations.serialize(self.activation),
            "epsilon": self.epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
