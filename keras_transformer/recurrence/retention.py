"""Retention: linear attention with exponential decay."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.projection import token_projection
from keras_transformer.positions.rotations.rotary import cos_and_sin, rotate_pairs
from keras_transformer.recurrence.decayed_products import decayed_products
from keras_transformer.recurrence.mixer import Recurrence
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Cache, Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class MultiScaleRetention(Recurrence):
    """Multi-scale retention: `(activation(X W_g) * norm(Y)) W_o`, where head n computes `y_t = q_t Σ_{s <= t} γ_n^(t - s)
    k_sᵀ v_s`.

    `γ_n = 1 - 2^(-5 - n)`, q and k are rotated by their positions, and the norm makes the root mean square of each head 1.
    The chunked form is the parallel form if the chunk is as long as the sequence, and the recurrent form for one token.
    Time grows with `T · (C + key_dim) · value_dim` for each head, memory with `T · C`, for chunks of C tokens. Products
    are computed in float32 under every dtype policy.

    Args:
        num_heads: int >= 1. N.
        key_dim: even int >= 2. Width of each query and key head.
        value_dim: int >= 1, or None for `2 * key_dim`. Width of each value head.
        chunk_size: int >= 1. C. Defaults to 128. It changes only the cost.
        activation: activation of the gate. Defaults to "silu".
        max_wavelength: float > 0. Wavelength of the slowest pair of features. Defaults to 10000.
        epsilon: float > 0. Added to the mean square in the norm. Defaults to 1e-6.
        use_bias: bool. Whether the projections have biases. Defaults to False.
        kernel_initializer: initializer of the projections.

    Call arguments: see `Recurrence`. `positions` determine the rotation of queries and keys; the decay goes by the order
        of the tokens.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is "state" `(B, N, key_dim, value_dim)`, float32.

    Raises:
        ValueError: odd `key_dim`; a call that is not causal; scores, an `attention_mask`, or cross-attention.

    Padding does not change the state. Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = MultiScaleRetention(num_heads=2, key_dim=4)
    >>> x = np.random.default_rng(0).normal(size=(1, 5, 8)).astype("float32")
    >>> whole, state, outputs = layer(x, x), layer.init_cache(batch_size=1), []
    >>> for index in range(5):
    ...     output, state = layer(x[:, index : index + 1], cache=state, cache_index=index)
    ...     outputs.append(output)
    >>> bool(np.allclose(np.concatenate(outputs, axis=1), whole, atol=1e-5))
    True

    Reference: Sun et al., Retentive Network, arXiv 2307.08621, equations 5 to 8. The scales of section 2.2 ("retention score
    normalization") are omitted: the norm cancels them, except for `epsilon`, and without them the forms are equal. Heads
    are normalized by their root mean square, as in the authors' code, where equation 8 has a group norm.
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
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.key_dim = positive("key_dim", key_dim)
        self.value_dim = 2 * key_dim if value_dim is None else positive("value_dim", value_dim)
        self.chunk_size = positive("chunk_size", chunk_size)
        if key_dim % 2:
            raise ValueError(f"key_dim must be even: features are rotated in pairs. Received: {key_dim}")
        self.activation = get_activation(activation)
        self.max_wavelength = float(max_wavelength)
        self.epsilon = epsilon
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        widths = {"query": self.key_dim, "key": self.key_dim, "value": self.value_dim, "gate": self.value_dim}
        for name, width in widths.items():
            dense = token_projection(self, name, self.num_heads * width, self.use_bias)
            dense.build(query_shape)
            setattr(self, f"{name}_dense", dense)
        self.output_dense = token_projection(self, "output", query_shape[-1], self.use_bias)
        self.output_dense.build((*query_shape[:2], self.num_heads * self.value_dim))

    def scan(self, x: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        query = self._rotated(self.query_dense(x), positions)
        key = self._rotated(self.key_dense(x), positions) * self.key_dim**-0.5
        value = ops.cast(self._split(self.value_dense(x), self.value_dim), "float32")
        state = None if cache is None else cache["state"]
        retained, state = decayed_products(query, key, value, self._log_decay(x), self.chunk_size, mask, state)
        squares = ops.mean(ops.square(retained), axis=-1, keepdims=True)
        retained = ops.cast(retained * ops.rsqrt(squares + self.epsilon), x.dtype)
        retained = ops.reshape(retained, (-1, ops.shape(x)[1], self.num_heads * self.value_dim))
        return self.output_dense(self.activation(self.gate_dense(x)) * retained), {"state": state}

    def _log_decay(self, x):
        """Returns log γ of each head, `(N,)`."""
        return np.log1p(-(2.0 ** (-5.0 - np.arange(self.num_heads))))

    def _rotated(self, x, positions):
        """Splits heads, as float32, and rotates them by their positions."""
        x = ops.cast(self._split(x, self.key_dim), "float32")
        rates = self.max_wavelength ** -np.linspace(0.0, 1.0, self.key_dim // 2)
        return rotate_pairs(x, *cos_and_sin(positions, rates, "pairs"), "pairs")

    def _split(self, x, width):
        return ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads, width))

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: str | None = None) -> Cache:
        """Returns an empty state. Its size does not depend on `max_length`. It is float32, as a sum of many terms."""
        return {"state": ops.zeros((batch_size, self.num_heads, self.key_dim, self.value_dim), dtype="float32")}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "chunk_size": self.chunk_size,
            "activation": keras.activations.serialize(self.activation),
            "max_wavelength": self.max_wavelength,
            "epsilon": self.epsilon,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
