"""The decoder block of RWKV-7, whose mixer reads the value of the first block."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.attention.cache.dense import cache_spec
from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.decoders.cached_block import CachedBlock
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, LayerLike, LayerOptions, Outputs, Shape, Tensor


@serializable
class ValueResidualBlock(CachedBlock):
    """Decoder block in a stack whose mixers share the value of the first block (value residual).

    Args:
        mixer: `recurrence.RWKV7TimeMixing`, another mixer with `value` and the call argument `first_value`, or its config.
            The mixer of the first block takes no `first_value`.
        feedforward, residual, norm, dropout, seed, recompute: as in `DecoderBlock`.

    Call arguments:
        inputs: float `(B, T, D)`.
        first_value: float `(B, T, D)`: the value of the first block. None in the first block.
        padding_mask, cache, cache_index: as in `DecoderBlock`.

    Returns:
        `(output, first_value)`, `(B, T, D)` each; with a cache, `((output, first_value), cache)`.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> from keras_transformer.recurrence import RWKV7TimeMixing
    >>> first = ValueResidualBlock(RWKV7TimeMixing(2), DenseFeedForward(16))
    >>> second = ValueResidualBlock(RWKV7TimeMixing(2, value_rank=3), DenseFeedForward(16))
    >>> x, value = first(np.ones((1, 3, 8)))
    >>> x, value = second(x, value)
    >>> tuple(x.shape), tuple(value.shape)
    ((1, 3, 8), (1, 3, 8))

    Reference: Peng et al., RWKV-7 "Goose", arXiv 2503.14456, section 4.1; Zhou et al., Value Residual Learning, arXiv
    2410.17897.
    """

    def __init__(
        self,
        mixer: LayerLike,
        feedforward: LayerLike | None,
        residual: str | Residual = "pre",
        norm: LayerLike = "layer_norm",
        dropout: float = 0.0,
        seed: int | None = None,
        recompute: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.mixer_residual = self._make_residual("mixer_residual")
        self.feedforward_residual = feedforward and self._make_residual("feedforward_residual")

    def build(self, inputs_shape: Shape, first_value_shape: Shape | None = None) -> None:
        shape = self._build_streams(self.mixer_residual, inputs_shape)
        self._build_sublayer(self.mixer_residual, self.mixer, shape, shape)
        if self.feedforward is not None:
            self._build_sublayer(self.feedforward_residual, self.feedforward, shape)

    def call(
        self,
        inputs: Tensor,
        first_value: Tensor | None = None,
        padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        padding_mask = implicit_mask(inputs) if padding_mask is None and cache is None else padding_mask
        next_cache = {} if cache is None else dict(cache)

        def run(x, *given):
            values = list(given)

            def mix(x):
                if not given:
                    own = None if cache is None else self._cache_of_mixer(cache)
                    values.append(self.mixer.value(x, padding_mask, own))
                options = {"first_value": given[0]} if given else {}
                return self._mix(x, padding_mask, cache, cache_index, next_cache, training=training, **options)

            def feed_forward(x):
                return self._feed_forward_cached(x, padding_mask, cache, cache_index, next_cache, training)

            x = self._apply_residual(self.mixer_residual, mix, self._split_streams(x), padding_mask, training)
            if self.feedforward is not None:
                x = self._apply_residual(self.feedforward_residual, feed_forward, x, padding_mask, training)
            return self._merge_streams(x, padding_mask, training), values[0]

        given = () if first_value is None else (first_value,)
        if cache is None:
            return self._run(run, inputs, *given, training=training)
        return run(inputs, *given), next_cache

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> tuple[Shape, Shape]:
        return inputs_shape, (*inputs_shape[:2], inputs_shape[-1])

    def compute_output_spec(
        self,
        inputs: Tensor,
        first_value: Tensor | None = None,
        *args: object,
        cache: Cache | None = None,
        **options: object,
    ) -> Outputs:
        shapes = self.compute_output_shape(inputs.shape)
        specs = tuple(keras.KerasTensor(shape, dtype=self.compute_dtype) for shape in shapes)
        return specs if cache is None else (specs, cache_spec(cache))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "feedforward": serialize(self.feedforward),
        }
