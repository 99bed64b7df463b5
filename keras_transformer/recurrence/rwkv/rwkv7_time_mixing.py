"""Time mixing of RWKV-7: a generalized delta rule with a decay and a learning rate per channel."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.mixer import MixerInputs, with_call_argument
from keras_transformer.attention.token_mixer import TokenMixer, zero_masked
from keras_transformer.layers.projection import token_projection
from keras_transformer.recurrence.delta.channel_delta_products import channel_delta_products
from keras_transformer.recurrence.heads import float_heads, unit_length
from keras_transformer.recurrence.mixer import Recurrence
from keras_transformer.recurrence.rwkv.time_mixing import check_layer_index
from keras_transformer.recurrence.rwkv.token_shift import TokenShift
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, Initializer, Outputs, Shape, Tensor

# The fastest decay: α >= exp(-exp(-1/2)) = 0.545.
_FASTEST = -math.exp(-0.5)
# Added to the squared length of removal keys, against a division by zero only.
_LENGTH_EPSILON = 1e-24


@serializable
class RWKV7TimeMixing(Recurrence):
    """Time mixing of RWKV-7: `(g * (norm(Y) + U)) W_o`, where each head computes `y_t = r_t S_t`,
    `S_t = (diag(α_t) - (a_t * c_t) c_tᵀ) S_{t - 1} + k_t v_tᵀ`, and `u_t = (Σ r_t * ρ * k_t) v_t`.

    All are functions of the token mixed with the one before it: `α = exp(-e^(-1/2) σ(b + tanh(x W_1) W_2))` is the decay and
    `a = σ(b + x W_3 W_4)` the in-context learning rate, one for each channel; `g = σ(x W_5) W_6`; the removal key c is
    `ξ * (x W_k)` with length 1 in each head, and `k = (x W_k) * (1 + (a - 1) * η)`. Layers behind the first mix their value
    with that of the first layer: `v = x W_v + (v_first - x W_v) * σ(b + x W_7 W_8)`.

    The chunked form is the recurrent form for one token, and consists of matrix products otherwise. Time grows with
    `T · (C · (C + H) + H²)` for each head of width H, memory with `T · (C + H · log C)` and `T / C · H²`, for chunks of C
    tokens. The rule is computed in float32 under every dtype policy.

    Args:
        num_heads: int, a divisor of D. N.
        decay_rank: int >= 1. Width between W_1 and W_2. Defaults to 64.
        rate_rank: int >= 1. Width between W_3 and W_4. Defaults to 64.
        gate_rank: int >= 1. Width between W_5 and W_6. Defaults to 128.
        value_rank: int >= 1, or None. Width between W_7 and W_8. None for a layer that does not read the value of the first
            layer, such as the first layer itself.
        layer_index: int >= 0. Index of the layer in its stack. It determines initial values.
        num_layers: int > `layer_index`. The number of layers of the stack.
        chunk_size: int >= 1. C, which is rounded up to a power of two. Defaults to 32. It changes only the cost.
        epsilon: float > 0. Added to the variance in the norm of each head. Defaults to 0.00064.
        kernel_initializer: initializer of the projections.

    Call arguments: see `Recurrence`; `positions` are not read. And:
        first_value: float `(B, T, D)`: what `value` of the first layer returns. Required if `value_rank` is set.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is "token" `(B, D)`, the last token, and "state"
        `(B, N, D / N, D / N)`, float32.

    Raises:
        ValueError: `num_heads` does not divide D; `layer_index` not below `num_layers`; `first_value` missing, or given to a
            layer without `value_rank`; a call that is not causal; scores, an `attention_mask`, or cross-attention.

    Padding does not change the state. Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer, x = RWKV7TimeMixing(num_heads=2), np.random.default_rng(0).normal(size=(1, 5, 8)).astype("float32")
    >>> whole, state, outputs = layer(x), layer.init_cache(batch_size=1), []
    >>> for index in range(5):
    ...     output, state = layer(x[:, index : index + 1], cache=state, cache_index=index)
    ...     outputs.append(output)
    >>> bool(np.allclose(np.concatenate(outputs, axis=1), whole, atol=1e-5))
    True

    Reference: Peng et al., RWKV-7 "Goose", arXiv 2503.14456, section 4.1; the state is the transpose of the paper's.
    Vectors start as in the authors' code. Deviation: all matrices start with `kernel_initializer`, where that code has zeros
    in W_o and in the first matrix of each pair, and orthogonal matrices elsewhere.
    """

    def __init__(
        self,
        num_heads: int,
        decay_rank: int = 64,
        rate_rank: int = 64,
        gate_rank: int = 128,
        value_rank: int | None = None,
        layer_index: int = 0,
        num_layers: int = 1,
        chunk_size: int = 32,
        epsilon: float = 64e-5,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.decay_rank = positive("decay_rank", decay_rank)
        self.rate_rank = positive("rate_rank", rate_rank)
        self.gate_rank = positive("gate_rank", gate_rank)
        self.value_rank = None if value_rank is None else positive("value_rank", value_rank)
        check_layer_index(layer_index, num_layers)
        self.layer_index = layer_index
        self.num_layers = num_layers
        self.chunk_size = positive("chunk_size", chunk_size)
        self.epsilon = epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        self._built_width = width = query_shape[-1]
        if width % self.num_heads:
            raise ValueError(f"num_heads must divide the width {width} of the tokens. Received: {self.num_heads}")
        mixes = _mixes(width, 1 - self.layer_index / self.num_layers)
        self.token_shift = TokenShift(mixes, of_previous=True, dtype=self.dtype_policy, name="token_shift")
        self.token_shift.build(query_shape)
        ranks = {"decay": self.decay_rank, "rate": self.rate_rank, "gate": self.gate_rank}
        ranks |= {} if self.value_rank is None else {"value_mix": self.value_rank}
        sizes = dict.fromkeys(("receptance", "key", "value", "output"), (width, width))
        for name, rank in ranks.items():
            sizes |= {f"{name}_input": (width, rank), name: (rank, width)}
        for name, (inputs, outputs) in sizes.items():
            dense = token_projection(self, name, outputs, use_bias=False)
            dense.build((*query_shape[:2], inputs))
            setattr(self, f"{name}_dense", dense)
        for name, start in _vectors(width, self.num_heads, self.layer_index, self.num_layers).items():
            if name != "value_mix_bias" or self.value_rank is not None:
                setattr(self, name, self._vector(name, start))

    def _vector(self, name, start):
        return self.add_weight(
            shape=start.shape, initializer=lambda shape, dtype: ops.convert_to_tensor(start, dtype), name=name
        )

    @with_call_argument(TokenMixer.call, "first_value")
    def call(
        self,
        query: Tensor,
        value: Tensor | None = None,
        key: Tensor | None = None,
        *,
        first_value: Tensor | None = None,
        **arguments: Any,
    ) -> Outputs:
        return self.apply(MixerInputs(query, value, key, extra={"first_value": first_value}, **arguments))

    def check(self, inputs: MixerInputs) -> None:
        super().check(inputs)
        if (inputs.extra["first_value"] is None) != (self.value_rank is None):
            raise ValueError(
                f"{self.name}: first_value is required if value_rank is set, and refused otherwise. "
                f"Received: value_rank={self.value_rank}"
            )

    def value(self, x: Tensor, mask: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        """Returns the value of the tokens, `(B, T, D)`, which other layers read as `first_value`.

        Args:
            x: float `(B, T, D)`.
            mask: boolean `(B, T)`, False for padding, or None.
            cache: dict as `init_cache` returns, or None.
        """
        before = None if cache is None else cache["token"]
        mixed, _ = self.token_shift(zero_masked(x, mask), before=before)
        return self.value_dense(mixed[list(_MIX_POWERS).index("value")])

    def scan(
        self, x: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None, first_value: Tensor | None = None
    ) -> tuple[Tensor, Cache]:
        cache = cache or {}
        mixed, token = self.token_shift(x, mask=mask, before=cache.get("token"))
        mixed = dict(zip(_MIX_POWERS, mixed, strict=True))
        value = ops.cast(self.value_dense(mixed["value"]), "float32")
        if first_value is not None:
            share = ops.sigmoid(self._low_rank("value_mix", mixed["value"]) + self._float("value_mix_bias"))
            value = value + (ops.cast(first_value, "float32") - value) * share
        log_decay = _FASTEST * ops.sigmoid(
            self._low_rank("decay", mixed["decay"], ops.tanh) + self._float("decay_bias")
        )
        rate = ops.sigmoid(self._low_rank("rate", mixed["rate"]) + self._float("rate_bias"))
        key = ops.cast(self.key_dense(mixed["key"]), "float32")
        removed = key * self._float("removal_scale")
        key = key * (1.0 + (rate - 1.0) * self._float("rate_scale"))
        parts = (self.receptance_dense(mixed["receptance"]), removed, rate, key, value, log_decay)
        query, removed, rate, key, value, log_decay = (float_heads(part, self.num_heads) for part in parts)
        removed = unit_length(removed, _LENGTH_EPSILON)
        y, state = channel_delta_products(
            query, removed, removed * rate, value, log_decay, self.chunk_size, key, mask, cache.get("state")
        )
        bonus = ops.sum(query * key * self._float("bonus"), axis=3, keepdims=True) * value
        y = self._normalized(y) + ops.reshape(bonus, (-1, ops.shape(x)[1], x.shape[2]))
        y = y * self._low_rank("gate", mixed["gate"], ops.sigmoid)
        return self.output_dense(ops.cast(y, x.dtype)), {"token": token, "state": state}

    def _normalized(self, y):
        """Returns the heads `(B, T, N, H)`, each normalized, as `(B, T, D)`."""
        centered = y - ops.mean(y, axis=3, keepdims=True)
        y = ops.rms_normalization(centered, axis=-1, epsilon=self.epsilon)
        y = ops.reshape(y, (-1, ops.shape(y)[1], y.shape[2] * y.shape[3]))
        return y * self._float("norm_scale") + self._float("norm_offset")

    def _low_rank(self, name, x, activation=lambda hidden: hidden):
        hidden = activation(getattr(self, f"{name}_input_dense")(x))
        return ops.cast(getattr(self, f"{name}_dense")(hidden), "float32")

    def _float(self, name):
        return ops.cast(getattr(self, name), "float32")

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: str | None = None) -> Cache:
        """Returns an empty state. Its size does not depend on `max_length`. It is float32, as a sum of many terms."""
        width = self._width()
        head_width = width // self.num_heads
        shapes = {"token": (width,), "state": (self.num_heads, head_width, head_width)}
        return {name: ops.zeros((batch_size, *shape), dtype="float32") for name, shape in shapes.items()}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "decay_rank": self.decay_rank,
            "rate_rank": self.rate_rank,
            "gate_rank": self.gate_rank,
            "value_rank": self.value_rank,
            "layer_index": self.layer_index,
            "num_layers": self.num_layers,
            "chunk_size": self.chunk_size,
            "epsilon": self.epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


# The mixes with the previous token, and how fast their initial values rise with the channel.
_MIX_POWERS = {"receptance": 0.2, "decay": 0.9, "key": 0.7, "value": 0.7, "rate": 0.9, "gate": 0.2}


def _mixes(width, left):
    """Returns the initial shares of the previous token, for `left`, the share of the stack that is not below the layer."""
    return {name: 1 - (np.arange(width) / width) ** (power * left) for name, power in _MIX_POWERS.items()}


def _vectors(width, num_heads, layer_index, num_layers):
    """Returns the initial values of the vectors."""
    ratio = np.arange(width) / max(1, width - 1)
    linear, depth = ratio - 0.5, layer_index / max(1, num_layers - 1)
    head_width = width // num_heads
    zigzag = np.tile(np.linspace(-1.0, 1.0, head_width), num_heads)
    zigzag = zigzag * np.abs(zigzag)
    return {
        "decay_bias": -5.5 + 6 * ratio ** (1 + depth**0.3) + 2.5 * zigzag,
        "rate_bias": -0.19 + 0.3 * zigzag + 0.4 * linear,
        "value_mix_bias": 0.73 - 0.4 * linear,
        "removal_scale": 0.71 - 0.1 * linear,
        "rate_scale": np.full(width, 1.02),
        "bonus": np.full((num_heads, head_width), -0.04),
        "norm_scale": np.full(width, ((layer_index + 1) / num_layers) ** 0.7),
        "norm_offset": np.zeros(width),
    }
