"""Time mixing of RWKV."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.layers.projection import token_projection
from keras_transformer.recurrence.mixer import Recurrence
from keras_transformer.recurrence.rwkv.token_shift import TokenShift
from keras_transformer.recurrence.rwkv.wkv import LOG_ZERO, wkv
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Cache, Config, Initializer, LayerOptions, Shape, Tensor


@serializable
class TimeMixing(Recurrence):
    """Time mixing of RWKV: `(σ(r_t) · y_t) W_o`, where `y_t` is a weighted mean of the values of all tokens so far.

    `y_t = (Σ_{s < t} e^(k_s - (t - 1 - s) w) v_s + e^(u + k_t) v_t) / (the sum of these weights)` for each
    channel, and r, k and v are projections of the token mixed with the one before it. Weights are kept as logarithms, so
    that they do not overflow at any length. Time and memory grow with `T · (C · A + D · A)`, for chunks of C tokens and A
    channels; one token costs `D · A`.

    Args:
        channels: int >= 1, or None for D. A.
        layer_index: int >= 0. Index of the layer in its stack: deeper layers start with a longer memory.
        num_layers: int > `layer_index`. The number of layers of the stack.
        chunk_size: int >= 1. C. Defaults to 8. It changes only the cost.
        kernel_initializer: initializer of the projections.

    Call arguments: see `Recurrence`; `positions` are not read.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is float32: "token" `(B, D)`, the last token; "mean"
        and "log_weight" `(B, A)`; and "is_begun" `(B, 1)`, 0 before the first token.

    Raises:
        ValueError: `layer_index` not below `num_layers`; a call that is not causal; scores, an `attention_mask`, or
            cross-attention.

    Padding does not change the state. Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer, x = TimeMixing(), np.random.default_rng(0).normal(size=(1, 5, 8)).astype("float32")
    >>> whole, state, outputs = layer(x), layer.init_cache(batch_size=1), []
    >>> for index in range(5):
    ...     output, state = layer(x[:, index : index + 1], cache=state, cache_index=index)
    ...     outputs.append(output)
    >>> bool(np.allclose(np.concatenate(outputs, axis=1), whole, atol=1e-5))
    True

    Reference: Peng et al., RWKV, arXiv 2305.13048, section 3 (time mixing of RWKV-4); vectors are initialized as in the
    authors' code.
    Deviation: the state is a mean and the logarithm of a weight, where that code has numerator, denominator and maximum.
    """

    def __init__(
        self,
        channels: int | None = None,
        layer_index: int = 0,
        num_layers: int = 1,
        chunk_size: int = 8,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.channels = None if channels is None else positive("channels", channels)
        check_layer_index(layer_index, num_layers)
        self.layer_index = layer_index
        self.num_layers = num_layers
        self.chunk_size = positive("chunk_size", chunk_size)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        self._built_width = width = query_shape[-1]
        channels = self.channels or width
        depth = self.layer_index / max(1, self.num_layers - 1)
        self.token_shift = TokenShift(
            _mixes(width, depth, self.layer_index / self.num_layers), dtype=self.dtype_policy, name="token_shift"
        )
        self.token_shift.build(query_shape)
        channel = np.arange(channels)
        decay = -5 + 8 * (channel / max(1, channels - 1)) ** (0.7 + 1.3 * depth)
        bonus = np.log(0.3) + 0.5 * ((channel + 1) % 3 - 1)
        self.log_decay = self._vector("log_decay", decay)
        self.bonus = self._vector("bonus", bonus)
        for name in ("receptance", "key", "value"):
            dense = token_projection(self, name, channels, use_bias=False)
            dense.build(query_shape)
            setattr(self, f"{name}_dense", dense)
        self.output_dense = token_projection(self, "output", width, use_bias=False)
        self.output_dense.build((*query_shape[:2], channels))

    def _vector(self, name, start):
        return self.add_weight(
            shape=start.shape, initializer=lambda shape, dtype: ops.convert_to_tensor(start, dtype), name=name
        )

    def scan(self, x: Tensor, mask: Tensor | None, positions: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        cache = cache or {}
        (for_key, for_value, for_receptance), token = self.token_shift(x, mask=mask, before=cache.get("token"))
        key, value = self.key_dense(for_key), self.value_dense(for_value)
        key, value, log_decay, bonus = (ops.cast(part, "float32") for part in (key, value, self.log_decay, self.bonus))
        past = None
        if cache:
            past = (ops.where(cache["is_begun"] > 0, cache["log_weight"], LOG_ZERO), cache["mean"])
        means, past = wkv(key, value, ops.exp(log_decay), bonus, self.chunk_size, mask, past)
        receptance = ops.sigmoid(self.receptance_dense(for_receptance))
        output = self.output_dense(receptance * ops.cast(means, x.dtype))
        return output, past and {"token": token, **_state(*past)}

    def init_cache(self, batch_size: int, max_length: int | None = None, dtype: str | None = None) -> Cache:
        """Returns an empty state. Its size does not depend on `max_length`. It is float32, for the logarithms of weights."""
        width = self._width()
        channels = self.channels or width
        widths = {"token": width, "mean": channels, "log_weight": channels, "is_begun": 1}
        return {name: ops.zeros((batch_size, width), dtype="float32") for name, width in widths.items()}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "channels": self.channels,
            "layer_index": self.layer_index,
            "num_layers": self.num_layers,
            "chunk_size": self.chunk_size,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def _state(log_weight, mean):
    """Returns the state as cache tensors, zeros if there was no token."""
    is_begun = log_weight > 0.5 * LOG_ZERO
    return {
        "mean": ops.where(is_begun, mean, 0.0),
        "log_weight": ops.where(is_begun, log_weight, 0.0),
        "is_begun": ops.cast(is_begun[:, :1], "float32"),
    }


def _mixes(width, depth, share):
    """Returns the initial values of the mixes for key, value and receptance."""
    channel = np.arange(width) / width
    key = channel ** (1 - share)
    return {"key": key, "value": key + 0.3 * depth, "receptance": channel ** (0.5 * (1 - share))}


def check_layer_index(layer_index: int, num_layers: int) -> None:
    """Raises `ValueError` for a layer index outside the stack."""
    if not 0 <= layer_index < num_layers:
        raise ValueError(f"layer_index must be in [0, num_layers). Received: {layer_index} of {num_layers}")
