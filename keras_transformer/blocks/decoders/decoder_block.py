"""The transformer decoder block."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.attention.masks import Visibility, implicit_mask
from keras_transformer.attention.mechanism import check_cross_attention
from keras_transformer.backend.call_arguments import takes
from keras_transformer.blocks.decoders.cached_block import CachedBlock
from keras_transformer.blocks.decoders.encoder_attention import EncoderAttention
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, LayerLike, LayerOptions, Outputs, Shape, Tensor


@serializable
class DecoderBlock(EncoderAttention, CachedBlock):
    """Transformer decoder block: a causal mixer, optional cross-attention and a feed-forward, with residual schemes.

    Args:
        mixer: `MultiHeadAttention`, another causal `TokenMixer`, or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config. One with a cache, such as `recurrence.ChannelMixing`,
            is called like a mixer. None for a block without a feed-forward.
        cross_attention: `MultiHeadAttention` or its config; None for a decoder-only block.
        residual: a name in `RESIDUALS`, or a `Residual` instance to copy. Default "pre".
        norm: a name in `NORMS`, or a norm layer to copy. Used if `residual` is a name.
        dropout: float in [0, 1). Dropout rate of the output of each sublayer. Default 0.
        seed: int or None. Seed of the dropout.
        recompute: bool. Whether training keeps only the inputs of the block and recomputes the activations in the backward
            pass: less memory, a third more time. `training.recompute_blocks` sets it in a whole model. Default False.

    Call arguments:
        inputs: float `(B, T, D)`.
        encoder_output: float `(B, S, D_encoder)`. Required with cross-attention, unless the cache holds its keys and
            values; an error without cross-attention.
        padding_mask: boolean `(B, T)`, True = a real token. None: the implicit Keras mask, if any. With a cache it covers
            the new tokens, which are padded on the right, and is required if the cache keeps less than all tokens
            (`cache_is_rewindable` is False).
        encoder_padding_mask: boolean `(B, S)`, True = a real token.
        attention_mask: boolean `(T, T)`, `(B, T, T)` or `(B, N, T, T)`, combined with the causal mask.
        positions: int `(T,)` or `(B, T)`; see `MultiHeadAttention`.
        cache: dict of `init_cache`, optionally joined with that of `memory_cache`; or None.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row.
        condition: float `(B, C)` or `(B, T, C)`, for a residual scheme that takes one: see `AdaLNZeroResidual`.
        prefix_length: int32 `()` or `(B,)`: the number of slots whose tokens attend to one another: see
            `MultiHeadAttention`, which alone supports it.
        segment_ids: int32 `(B, T)`, of packed rows, 0 for padding: tokens attend to those of their segment only. Without a
            cache.

    Returns:
        `(B, T, D)`; with a cache, `(output, cache)`.

    Raises:
        ValueError: unknown names; a `cross_attention` that supports self-attention only; `encoder_output` missing, or
            given without cross-attention; a condition missing, or given to schemes that take none.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = DecoderBlock(MultiHeadAttention(2, 4), DenseFeedForward(16))
    >>> output, cache = block(np.ones((1, 3, 8)), cache=block.init_cache(1, max_length=5), cache_index=0)
    >>> tuple(output.shape), sorted(cache)
    ((1, 3, 8), ['key', 'value'])

    Reference: Vaswani et al., arXiv 1706.03762, section 3.1.
    """

    def __init__(
        self,
        mixer: LayerLike,
        feedforward: LayerLike | None,
        cross_attention: LayerLike | None = None,
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
        self.cross_attention = resolve(cross_attention, {}, keras.layers.Layer, argument="cross_attention")
        check_cross_attention(self.cross_attention)
        self.mixer_residual = self._make_residual("mixer_residual")
        self.cross_attention_residual = cross_attention and self._make_residual("cross_attention_residual")
        self.feedforward_residual = feedforward and self._make_residual("feedforward_residual")

    def build(self, inputs_shape: Shape, encoder_output_shape: Shape | None = None) -> None:
        self._check_encoder_output(encoder_output_shape)
        shape = self._build_streams(self.mixer_residual, inputs_shape)
        self._build_sublayer(self.mixer_residual, self.mixer, shape, shape)
        if self.cross_attention is not None:
            self._build_sublayer(self.cross_attention_residual, self.cross_attention, shape, encoder_output_shape)
        if self.feedforward is not None:
            self._build_sublayer(self.feedforward_residual, self.feedforward, shape)

    def call(
        self,
        inputs: Tensor,
        encoder_output: Tensor | None = None,
        padding_mask: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        condition: Tensor | None = None,
        prefix_length: Tensor | None = None,
        segment_ids: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        self._check_encoder_output(encoder_output, cache)
        residuals = self.mixer_residual, self.cross_attention_residual, self.feedforward_residual
        self._check_condition(condition, *residuals)
        padding_mask = implicit_mask(inputs) if padding_mask is None and cache is None else padding_mask
        encoder_mask = implicit_mask(encoder_output) if encoder_padding_mask is None else encoder_padding_mask
        next_cache = {} if cache is None else dict(cache)

        def mix(x):
            options = {"attention_mask": attention_mask, "positions": positions, "training": training}
            options |= {} if prefix_length is None else {"prefix_length": prefix_length}
            options |= self._segment_options(segment_ids, attention_mask)
            return self._mix(x, padding_mask, cache, cache_index, next_cache, **options)

        def feed_forward(x):
            return self._feed_forward_cached(x, padding_mask, cache, cache_index, next_cache, training)

        others = {"encoder_output": encoder_output, "condition": condition}
        others = {name: tensor for name, tensor in others.items() if tensor is not None}

        def run(x, *tensors):
            given = dict(zip(others, tensors, strict=True))

            def attend_encoder(x):
                return self._attend_encoder(x, given.get("encoder_output"), encoder_mask, cache, cache_index, training)

            x = self._split_streams(x)
            x = self._apply_sublayers(
                x, mix, attend_encoder, feed_forward, padding_mask, training, given.get("condition")
            )
            return self._merge_streams(x, padding_mask, training)

        if cache is None:
            return self._run(run, inputs, *others.values(), training=training)
        return run(inputs, *others.values()), next_cache

    def _segment_options(self, segment_ids, attention_mask):
        """The segments as an argument of the mixer: as they are if it takes them, otherwise in the attention mask."""
        if segment_ids is None:
            return {}
        if takes(self.mixer, "segment_ids"):
            return {"segment_ids": segment_ids}
        visibility = Visibility(attention_mask=attention_mask, segment_ids=segment_ids)
        return {"attention_mask": visibility.with_segments_as_mask().attention_mask}

    def _apply_sublayers(self, x, mix, attend_encoder, feed_forward, padding_mask, training, condition=None):
        """Calls the sublayers, functions of one tensor, each inside its residual scheme."""
        options = padding_mask, training, condition
        x = self._apply_residual(self.mixer_residual, mix, x, *options)
        if self.cross_attention is not None:
            x = self._apply_residual(self.cross_attention_residual, attend_encoder, x, *options)
        if self.feedforward is not None:
            x = self._apply_residual(self.feedforward_residual, feed_forward, x, *options)
        return x

    def compute_output_spec(
        self,
        inputs: Tensor,
        encoder_output: Tensor | None = None,
        *args: object,
        cache: Cache | None = None,
        **options: object,
    ) -> Outputs:
        return self._output_spec(inputs.shape, cache)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "feedforward": serialize(self.feedforward),
            "cross_attention": serialize(self.cross_attention),
        }
