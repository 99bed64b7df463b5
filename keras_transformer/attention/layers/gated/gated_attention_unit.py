"""Gated attention unit (GAU): single-head attention with weights that are no softmax, and an output gate."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Unpack

import numpy as np
from keras import ops

from keras_transformer.attention.cache.dense import (
    check_key_mask,
    init_dense_cache,
    read_dense_cache,
    update_dense_cache,
)
from keras_transformer.attention.layers.gated.gated_unit import GatedUnit
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.token_mixer import zero_masked
from keras_transformer.positions import AttentionPosition
from keras_transformer.utils.serialization import choice, serializable
from keras_transformer.utils.types import Cache, Config, Initializer, LayerOptions, Tensor

# Below it, the distribution function is a series: the quotient of the GELU would be 0 / 0 at zero.
_NEAR = 0.5
_MEAN, _DEVIATION = math.sqrt(0.5), math.sqrt(0.25 / math.pi)


def squared_relu(scores: Tensor) -> Tensor:
    """Squared ReLU: `max(s, 0)²`. So et al., Primer, arXiv 2109.08668."""
    return ops.square(ops.relu(scores))


def laplace(scores: Tensor) -> Tensor:
    """Laplace function: `(1 + erf((s - μ) / (σ √2))) / 2` with `μ = √(1/2)`, `σ = √(1 / 4π)`.

    At a score of √(1/2) it has the value and the slope of the squared ReLU; it is bounded by 1.

    Ma et al., Mega, arXiv 2209.10655, the Laplace attention function.
    """
    return normal_distribution((scores - _MEAN) * (1.0 / _DEVIATION))


def normal_distribution(x: Tensor) -> Tensor:
    """Returns the distribution function of the standard normal, `Φ(x) = (1 + erf(x / √2)) / 2`.

    It is `GELU(x) / x`, because TFLite has the GELU as a built-in operator, but no error function.
    """
    is_near = ops.abs(x) < _NEAR
    far = ops.where(is_near, 1.0, x)
    near = ops.where(is_near, x, 0.0)
    squares, series = ops.square(near), ops.zeros_like(near)
    for power in range(6, -1, -1):
        series = series * squares + (-1.0) ** power / (2.0**power * math.factorial(power) * (2 * power + 1))
    series = 0.5 + near * series * float(1 / np.sqrt(2 * np.pi))
    return ops.where(is_near, series, ops.gelu(far, approximate=False) / far)


ATTENTION_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"squared_relu": squared_relu, "laplace": laplace}


@serializable
class GatedAttentionUnit(GatedUnit):
    """Gated attention unit: `y = (u ⊙ A v) W_o`, `A_ij = f((q_i · k_j + bias_ij) / n_i)`.

    n_i is the number of keys that query i attends to, and f the squared ReLU, `max(s, 0)²`, or the Laplace function. `u, v =
    silu(x W)`; q and k are the vector `silu(x W_z)` with separate scales and offsets. The layer replaces both attention and
    feed-forward. Time and memory grow with T²; `MixedChunkAttention` is the linear form. Weights are computed in float32
    under every dtype policy.

    Args:
        intermediate_dim: int >= 1, or None for `2 D`. The width E of gate and values.
        key_dim: int >= 1. The width of queries and keys.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance, or None.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        kernel_initializer: initializer of the projections.
        seed: int or None. Seed of the dropout.
        attention_function: "squared_relu", or "laplace" for `(1 + erf((s - μ) / (σ √2))) / 2` with `μ = √(1/2)` and
            `σ = √(1 / 4π)`, which is bounded, and whose weight of a score of zero is 0.006.

    Call arguments: see `TokenMixer`. Causal or bidirectional. The cache holds all keys and values: "key" `(B, 1, L,
    key_dim)` and
        "value" `(B, 1, L, E)`.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: sizes below 1; an unknown `attention_function`; an unsupported argument: cross-attention, scores or an
            `attention_mask`; more tokens than slots of the cache.

    Example:

    >>> import numpy as np
    >>> layer = GatedAttentionUnit(key_dim=8, position="rotary")
    >>> x = np.ones((1, 5, 16), "float32")
    >>> tuple(layer(x, x).shape)
    (1, 5, 16)

    Reference: Hua et al., Transformer Quality in Linear Time, arXiv 2202.10447, section 2.2; the Laplace function: Ma et
    al., Mega, arXiv 2209.10655. Deviations: norm and residual
    belong to the block; scales start near 1; n is counted for each query, so that a causal output does not depend on later
    tokens.
    """

    supports = frozenset({"causal", "bidirectional", "cache", "bias", "query"})
    cache_is_rewindable = True
    uses = ("query", "key")

    def __init__(
        self,
        intermediate_dim: int | None = None,
        key_dim: int = 128,
        position: str | Config | AttentionPosition | None = None,
        dropout: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        attention_function: str = "squared_relu",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(intermediate_dim, key_dim, position, dropout, kernel_initializer, seed, **kwargs)
        self._function = choice(attention_function, ATTENTION_FUNCTIONS, argument="attention_function")
        self.attention_function = attention_function

    def mix(self, inputs: MixerInputs) -> Tensor:
        x, visibility = inputs.query, inputs.visibility
        value, gate, (query, key) = self.project(x)
        query, key = self.rotate(query, key, visibility)
        return self._attend(query, key, ops.expand_dims(value, 2), gate, visibility, inputs.training)

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        return init_dense_cache(batch_size, max_length, 1, self.key_dim, self._width, dtype or self.compute_dtype)

    def extend(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        x, visibility = inputs.query, inputs.visibility
        check_key_mask(inputs.cache, visibility.key_mask)
        value, gate, (query, key) = self.project(x)
        query, key = self.rotate(query, key, visibility)
        cache = update_dense_cache(inputs.cache, key, ops.expand_dims(value, 2), inputs.cache_index)
        key, value = read_dense_cache(cache, query.dtype)
        slots = ops.arange(ops.shape(key)[1], dtype="int32")
        visibility = dataclasses.replace(visibility, key_slots=slots, key_positions=slots)
        return self._attend(query, key, value, gate, visibility, inputs.training), cache

    def _attend(self, query, key, value, gate, visibility, training):
        """Returns the output `(B, T, D)` for query `(B, T, 1, key_dim)`, key and value `(B, S, 1, ...)`."""
        bias = self.bias(query, visibility.query_positions, visibility.key_positions)
        query, key, value = (ops.cast(ops.transpose(x, (0, 2, 1, 3)), "float32") for x in (query, key, value))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) + bias  # (B, 1, T, S)
        mask = visibility.dense()
        if mask is None:
            weights = self._function(scores / ops.cast(ops.shape(key)[2], "float32"))
        else:
            mask = ops.cast(mask, "float32")
            seen = ops.maximum(ops.sum(mask, axis=-1, keepdims=True), 1.0)
            weights = self._function(scores / seen) * mask
        context = ops.matmul(self._dropout_layer(weights, training=training), value)  # (B, 1, T, E)
        context = ops.cast(ops.reshape(context, (-1, ops.shape(gate)[1], self._width)), gate.dtype)
        return self._output_dense(zero_masked(gate * context, visibility.query_mask))

    def get_config(self) -> Config:
        return {**super().get_config(), "attention_function": self.attention_function}
