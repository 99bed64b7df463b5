"""The decoder blocks of Gemma 3n."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention import CrossDecoderAttention, SharedKeyValue
from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import cache_spec, token_slots
from keras_transformer.blocks.streams.alt_up import AltUp
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.norms import NORMS
from keras_transformer.layers.projection import token_projection
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import (
    Activation,
    Cache,
    Config,
    DType,
    LayerLike,
    LayerOptions,
    Outputs,
    Shape,
    Tensor,
)

_NORMS = ("input_norm", "attention_norm", "feedforward_input_norm", "feedforward_norm", "laurel_norm", "layer_norm")


@serializable
class AltUpBlock(keras.layers.Layer):
    """Decoder block of Gemma 3n that attends to the keys and values of another block: see `AltUpKeyValueBlock`.

    For the active stream x of the prediction of `AltUp`, with `h = norm(x)` and the input e of this layer:

        r = (x + norm(attention(h)) + laurel(h)) / √2,   laurel(h) = h + norm(h W_left W_right)
        y = r + norm(feedforward(norm(r)))

    The streams are corrected by y. Then `norm((activation(s y' W_gate) * e) W_layer)` is added to all of them but the first,
    for the corrected active stream y' and the scale s of `AltUp`.

    Args:
        attention: `CrossDecoderAttention` or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)` on single tokens, or its config.
        alt_up: `AltUp` or its config.
        laurel_rank: int >= 1. Width between W_left and W_right.
        activation: activation of the gate of the input of the layer.
        scales_output: bool. Whether s multiplies y'. Defaults to True.
        norm: a name in `NORMS`, or a norm layer to copy.

    Call arguments:
        inputs: float `(B, T, S, D)`: the streams.
        layer_input: float `(B, T, P)`: e.
        key: float `(B, K, S', H)`, of `AltUpKeyValueBlock`.
        value: float `(B, K, S', H_value)`.
        padding_mask: boolean `(B, S')`, True = a real token, or None.
        positions: int `(T,)` or `(B, T)`: see `CrossDecoderAttention`.

    Returns:
        `(B, T, S, D)`.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.feedforward import GatedFeedForward
    >>> parts = (CrossDecoderAttention(2, 4), GatedFeedForward(16), AltUp(3))
    >>> own = AltUpKeyValueBlock(*parts, laurel_rank=2, key_value=SharedKeyValue(1, 4))
    >>> other = AltUpBlock(CrossDecoderAttention(2, 4), GatedFeedForward(16), AltUp(3), laurel_rank=2)
    >>> x, e = np.ones((1, 5, 3, 8), "float32"), np.ones((1, 5, 6), "float32")
    >>> x, key, value = own(x, e)
    >>> tuple(other(x, e, key, value).shape), tuple(key.shape)
    ((1, 5, 3, 8), (1, 1, 5, 4))

    Reference: Google, Gemma 3n, 2025, and its code; LAuReL: Menghani et al., arXiv 2411.07501, section 2 (low rank).
    """

    def __init__(
        self,
        attention: LayerLike,
        feedforward: LayerLike,
        alt_up: LayerLike,
        laurel_rank: int = 64,
        activation: Activation = "gelu_tanh",
        scales_output: bool = True,
        norm: LayerLike = "rms_norm",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.attention = resolve(attention, {}, CrossDecoderAttention, argument="attention")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.alt_up = resolve(alt_up, {}, AltUp, argument="alt_up")
        self.laurel_rank = positive("laurel_rank", laurel_rank)
        self.activation = get_activation(activation)
        self.scales_output = scales_output
        self.norm = resolve(norm, NORMS, keras.layers.Layer, argument="norm")
        self.kernel_initializer = keras.initializers.get("glorot_uniform")

    def build(self, inputs_shape: Shape, layer_input_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        tokens, width, inner = tuple(inputs_shape[:2]), inputs_shape[-1], layer_input_shape[-1]
        shape = (*tokens, width)
        self.alt_up.build(inputs_shape)
        self.attention.build(shape, key_shape, value_shape)
        self.feedforward.build(shape)
        for name in _NORMS:
            layer = clone(self.norm, name=name, dtype=self.dtype_policy)
            layer.build(shape)
            setattr(self, name, layer)
        sizes = {
            "laurel_left": (width, self.laurel_rank),
            "laurel_right": (self.laurel_rank, width),
            "layer_gate": (width, inner),
            "layer_projection": (inner, width),
        }
        for name, (inputs, outputs) in sizes.items():
            layer = token_projection(self, name, outputs, use_bias=False)
            layer.build((*tokens, inputs))
            setattr(self, f"{name}_dense", layer)

    def call(
        self,
        inputs: Tensor,
        layer_input: Tensor,
        key: Tensor,
        value: Tensor,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        def attend(x):
            return self.attention(x, key, value, padding_mask=padding_mask, positions=positions, training=training)

        return self._update(inputs, layer_input, attend, training)

    def _update(
        self, streams: Tensor, layer_input: Tensor, attend: Callable[[Tensor], Tensor], training: bool | None
    ) -> Tensor:
        """Returns the next streams; `attend` is the function of the normalized active stream to its attention."""
        predicted = self.alt_up.predict(streams, training)
        x = predicted[:, :, self.alt_up.active]
        h = self.input_norm(x)
        laurel = h + self.laurel_norm(self.laurel_right_dense(self.laurel_left_dense(h)))
        r = (x + self.attention_norm(attend(h)) + laurel) * (1.0 / math.sqrt(2.0))
        y = r + self.feedforward_norm(self.feedforward(self.feedforward_input_norm(r), training=training))
        streams = self.alt_up.correct(predicted, y, training)
        active = self.alt_up.scaled(streams) if self.scales_output else streams[:, :, self.alt_up.active]
        gated = self.activation(self.layer_gate_dense(active)) * ops.cast(layer_input, active.dtype)
        added = ops.expand_dims(self.layer_norm(self.layer_projection_dense(gated)), 2)
        return ops.concatenate([streams[:, :, :1], streams[:, :, 1:] + added], axis=2)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return tuple(inputs_shape)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "attention": serialize(self.attention),
            "feedforward": serialize(self.feedforward),
            "alt_up": serialize(self.alt_up),
            "laurel_rank": self.laurel_rank,
            "activation": keras.activations.serialize(self.activation),
            "scales_output": self.scales_output,
            "norm": serialize(self.norm),
        }


@serializable
class AltUpKeyValueBlock(CachedLayer, AltUpBlock):
    """Decoder block of Gemma 3n with keys and values of its own, which later blocks may share: see `AltUpBlock`.

    Args:
        attention, feedforward, alt_up, laurel_rank, activation, scales_output, norm: as in `AltUpBlock`.
        key_value: `SharedKeyValue` or its config, with the position of the attention.

    Call arguments:
        inputs, layer_input, padding_mask: as in `AltUpBlock`.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row.

    Returns:
        `(streams, key, value)`: `(B, T, S, D)`, and keys and values as `SharedKeyValue` returns them; with a cache,
        `((streams, key, value), next_cache)`.

    Example: see `AltUpBlock`.

    >>> import numpy as np
    >>> from keras_transformer.feedforward import GatedFeedForward
    >>> parts = (CrossDecoderAttention(2, 4), GatedFeedForward(16), AltUp(3))
    >>> block = AltUpKeyValueBlock(*parts, laurel_rank=2, key_value=SharedKeyValue(1, 4))
    >>> x, e = np.ones((1, 2, 3, 8), "float32"), np.ones((1, 2, 6), "float32")
    >>> (x, key, value), cache = block(x, e, cache=block.init_cache(1, max_length=5), cache_index=0)
    >>> tuple(key.shape)
    (1, 1, 5, 4)

    Reference: as of `AltUpBlock`.
    """

    cache_is_rewindable = True

    def __init__(
        self,
        attention: LayerLike,
        feedforward: LayerLike,
        alt_up: LayerLike,
        laurel_rank: int = 64,
        activation: Activation = "gelu_tanh",
        scales_output: bool = True,
        norm: LayerLike = "rms_norm",
        key_value: LayerLike | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(attention, feedforward, alt_up, laurel_rank, activation, scales_output, norm, **kwargs)
        self.key_value = resolve(key_value, {}, SharedKeyValue, argument="key_value")

    def build(  # type: ignore[override]
        self, inputs_shape: Shape, layer_input_shape: Shape
    ) -> None:
        self.key_value.build((*inputs_shape[:2], inputs_shape[-1]))
        super().build(inputs_shape, layer_input_shape, *self._key_value_shapes(inputs_shape))

    def _key_value_shapes(self, inputs_shape: Shape) -> list[Shape]:
        layer = self.key_value
        return [(inputs_shape[0], layer.num_heads, inputs_shape[1], n) for n in (layer.key_dim, layer.value_dim)]

    def call(  # type: ignore[override]
        self,
        inputs: Tensor,
        layer_input: Tensor,
        padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        found = []

        def attend(x):
            if cache is None:
                found.extend([*self.key_value(x), None])
                return self.attention(x, *found[:2], padding_mask=padding_mask, training=training)
            pair, following = self.key_value(x, cache=cache, cache_index=cache_index)
            found.extend([*pair, following])
            positions = token_slots(cache_index, ops.shape(x)[1])
            return self.attention(x, *pair, positions=positions, training=training)

        streams = self._update(inputs, layer_input, attend, training)
        key, value, following = found
        return (streams, key, value) if cache is None else ((streams, key, value), following)

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns an empty cache for `max_length` tokens: dict of "key" and "value"."""
        return self.key_value.init_cache(batch_size, max_length, dtype)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> tuple[Shape, ...]:
        return (tuple(inputs_shape), *self._key_value_shapes(inputs_shape))

    def compute_output_spec(
        self, inputs: Tensor, *args: object, cache: Cache | None = None, **options: object
    ) -> Outputs:
        shapes = self.compute_output_shape(inputs.shape)
        if cache is not None:
            shapes = (shapes[0], *(tensor.shape for tensor in cache.values()))
        specs = tuple(keras.KerasTensor(shape, dtype=self.compute_dtype) for shape in shapes)
        return specs if cache is None else (specs, cache_spec(cache))

    def get_config(self) -> Config:
        return {**super().get_config(), "key_value": serialize(self.key_value)}
