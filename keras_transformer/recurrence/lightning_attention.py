"""Lightning attention: linear attention with a constant decay per head."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.projection import token_projection
from keras_transformer.recurrence.decayed_products import decayed_products
from keras_transformer.recurrence.heads import float_heads
from keras_transformer.recurrence.mixer import Recurrence
from keras_transformer.recurrence.rwkv.time_mixing import check_layer_index
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Cache, Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class LightningAttention(Recurrence):
    """Lightning attention: `(σ(X W_g) * norm(Y)) W_o`, where each head computes `y_t = q_t Σ_{s <= t} λ^(t - s) k_sᵀ v_s`.

    q, k and v are `activation(X W)`. Head h of N, counted from 1, decays with `λ = exp(-2^(-8 h / N) (1 - l / (L - 1)))` in
    layer l of L: later heads and later layers remember longer. The chunked form is the recurrent form for one token. Time
    grows with `T · (C + key_dim) · value_dim` for each head, memory with `T · C`, for chunks of C tokens. The states are
    computed in float32 under every dtype policy.

    Args:
        num_heads: int >= 1. N.
        key_dim: int >= 1. Width of each query and key head.
        value_dim: int >= 1, or None for `key_dim`. Width of each value head.
        layer_index: int >= 0. l.
        num_layers: int > `layer_index`. L.
        chunk_size: int >= 1. C. Defaults to 128. It changes only the cost.
        activation: activation of q, k and v. Defaults to "silu".
        epsilon: float > 0. Added to the mean square in the norm, which is over all heads. Defaults to 1e-6.
        kernel_initializer: initializer of the projections.

    Call arguments: see `Recurrence`; `positions` are not read.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is "state" `(B, N, key_dim, value_dim)`, float32.

    Raises:
        ValueError: `layer_index` not below `num_layers`; a call that is not causal; scores, an `attention_mask`, or
            cross-attention.

    Padding does not change the state. Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = LightningAttention(num_heads=2, key_dim=4)
    >>> output, cache = layer(np.ones((1, 3, 8)), cache=layer.init_cache(batch_size=1), cache_index=0)
    >>> tuple(output.shape), tuple(cache["state"].shape)
    ((1, 3, 8), (1, 2, 4, 4))

    Reference: Qin et al., Lightning Attention-2, arXiv 2401.04658, algorithm 1; MiniMax, MiniMax-01, arXiv 2501.08313,
    section 2.2 (gate, norm and activation). As in the code of the latter, 0.00001 is added to `L - 1` and to the factor of
    the exponent. At padding the state does not decay, where that code decays by position.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        layer_index: int = 0,
        num_layers: int = 1,
        chunk_size: int = 128,
        activation: Activation = "silu",
        epsilon: float = 1e-6,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.key_dim = positive("key_dim", key_dim)
        self.value_dim = key_dim if value_dim is None else positive("value_dim", value_dim)
        check_layer_index(layer_index, num_layers)
        self.layer_index = layer_index
        self.num_layers = num_layers
        self.chunk_size = positive("chunk_size", chunk_size)
        self.activation = get_activation(activation)
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        values = self.num_heads * self.value_dim
        widths = {"query": self.num_heads * self.key_dim, "key": self.num_heads * self.key_dim}
        for name, width in {**widths, "value": values, "gate": values}.items():
            dense = token_projection(self, name, width, use_bias=False)
            dense.build(query_shape)
            setattr(self, f"{name}_dense", dense)
        self.norm_scale = self.add_weight(name="norm_scale", shape=(values,), initializer="ones")
        self.output_dense = token_projection(self, "output", query_shape[-1], use_bias=False)
        self.output_dense.build((*query_shape[:2], values))

    def scan(self, x: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        query, key, value = (
            float_heads(self.activation(dense(x)), self.num_heads)
            for dense in (self.query_dense, self.key_dense, self.value_dense)
        )
        state = None if cache is None else cache["state"]
        y, state = decayed_products(query, key, value, self._log_decay(), self.chunk_size, mask, state)
        y = ops.reshape(y, (-1, ops.shape(x)[1], self.num_heads * self.value_dim))
        y = ops.rms_normalization(y, scale=ops.cast(self.norm_scale, "float32"), axis=-1, epsilon=self.epsilon)
        y = y * ops.sigmoid(ops.cast(self.gate_dense(x), "float32"))
        return self.output_dense(ops.cast(y, x.dtype)), {"state": state}

    def _log_decay(self):
        """Returns log λ of each head, `(N,)`."""
        slopes = 2.0 ** (-8.0 * np.arange(1, self.num_heads + 1) / self.num_heads)
        return -slopes * (1 - self.layer_index / (self.num_layers - 1 + 1e-5) + 1e-5)

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: str | None = None) -> Cache:
        """Returns an empty state. Its size does not depend on `max_length`. It is float32, as a sum of many terms."""
        return {"state": ops.zeros((batch_size, self.num_heads, self.key_dim, self.value_dim), dtype="float32")}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "layer_index": self.layer_index,
            "num_layers": self.num_layers,
            "chunk_size": self.chunk_size,
            "activation": keras.activations.serialize(self.activation),
            "epsilon": self.epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
