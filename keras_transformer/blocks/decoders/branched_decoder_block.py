"""The branched half of the Evolved Transformer's decoder cell."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.prefixes import add_prefix, drop_prefixes, select_prefix
from keras_transformer.attention.masks import implicit_mask
from keras_transformer.attention.mechanism import check_cross_attention
from keras_transformer.blocks.block import Block
from keras_transformer.blocks.decoders.encoder_attention import CROSS, EncoderAttention
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, DType, LayerLike, LayerOptions, Outputs, Shape, Tensor

# Prefix of the convolution's tensors in the cache.
_CONVOLUTION = "convolution_"


@serializable
class BranchedDecoderBlock(CachedLayer, EncoderAttention, Block):
    """Causal attention and cross-attention in parallel, then a causal convolution, with residual schemes.

    With `residual="pre"`: `x = x + mixer(norm(x)) + cross_attention(norm(x), encoder_output)`, with one shared norm, then
    `x = x + convolution(norm(x))`.

    Args:
        mixer: `MultiHeadAttention`, another causal `TokenMixer`, or its config.
        cross_attention: `MultiHeadAttention` or its config.
        convolution: a causal mixer, such as `attention.BranchedConvolution`, or its config.
        residual: a name in `RESIDUALS`, or a `Residual` instance to copy. Default "pre".
        norm: a name in `NORMS`, or a norm layer to copy. Used if `residual` is a name.
        dropout: float in [0, 1). Dropout rate of the output of each sublayer. Default 0.
        seed: int or None. Seed of the dropout.
        recompute: bool. See `DecoderBlock`.

    Call arguments:
        inputs: float `(B, T, D)`.
        encoder_output: float `(B, S, D_encoder)`. Required unless the cache holds its keys and values.
        padding_mask: boolean `(B, T)`, True = a real token. None: the implicit Keras mask, if any. With a cache it covers
            the new tokens, which are padded on the right, and is required if the cache keeps less than all tokens
            (`cache_is_rewindable` is False).
        encoder_padding_mask: boolean `(B, S)`, True = a real token.
        cache: dict of `init_cache`, optionally joined with that of `memory_cache`; or None.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row.

    Returns:
        `(B, T, D)`; with a cache, `(output, cache)`.

    Raises:
        ValueError: unknown names; a `cross_attention` that supports self-attention only; `encoder_output` missing.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import LightweightConvolution, MultiHeadAttention
    >>> attention = [MultiHeadAttention(2, 4) for _ in range(2)]
    >>> block = BranchedDecoderBlock(*attention, LightweightConvolution(2, kernel_size=3))
    >>> tuple(block(np.ones((1, 3, 8)), np.ones((1, 5, 8))).shape)
    (1, 3, 8)
    >>> sorted(block.init_cache(1, max_length=4))
    ['convolution_recent_inputs', 'key', 'value']

    Reference: So et al., The Evolved Transformer, arXiv 1901.11117, figure 3 (upper half of the decoder cell).
    """

    def __init__(
        self,
        mixer: LayerLike,
        cross_attention: LayerLike,
        convolution: LayerLike,
        residual: str | Residual = "pre",
        norm: LayerLike = "layer_norm",
        dropout: float = 0.0,
        seed: int | None = None,
        recompute: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.cross_attention = resolve(cross_attention, {}, keras.layers.Layer, argument="cross_attention")
        self.convolution = resolve(convolution, {}, keras.layers.Layer, argument="convolution")
        check_cross_attention(self.cross_attention)
        self.attention_residual = self._make_residual("attention_residual")
        self.convolution_residual = self._make_residual("convolution_residual")

    def build(self, inputs_shape: Shape, encoder_output_shape: Shape | None = None) -> None:
        self._check_encoder_output(encoder_output_shape)
        shape = self._build_streams(self.attention_residual, inputs_shape)
        self._build_sublayer(self.attention_residual, self.mixer, shape, shape)
        self._build_sublayer(self.attention_residual, self.cross_attention, shape, encoder_output_shape)
        self._build_sublayer(self.convolution_residual, self.convolution, shape, shape)

    def call(
        self,
        inputs: Tensor,
        encoder_output: Tensor | None = None,
        padding_mask: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        self._check_encoder_output(encoder_output, cache)
        padding_mask = implicit_mask(inputs) if padding_mask is None and cache is None else padding_mask
        encoder_mask = implicit_mask(encoder_output) if encoder_padding_mask is None else encoder_padding_mask
        next_cache = {} if cache is None else dict(cache)

        def causal(layer, prefix):
            """Returns a function of tokens that calls a causal layer with its part of the cache."""

            def mix(x):
                if cache is None:
                    return layer(x, x, value_mask=padding_mask, use_causal_mask=True, training=training)
                own = select_prefix(cache, prefix) if prefix else drop_prefixes(cache, CROSS, _CONVOLUTION)
                options = {"query_mask": padding_mask, "cache": own, "cache_index": cache_index}
                output, own = layer(x, x, **options, use_causal_mask=True, training=training)
                next_cache.update(add_prefix(prefix, own))
                return output

            return mix

        def run(x, encoder_output):
            def attend(x):
                own = self._dropout_layer(causal(self.mixer, "")(x), training=training)
                crossed = self._attend_encoder(x, encoder_output, encoder_mask, cache, cache_index, training)
                return own + self._dropout_layer(crossed, training=training)

            scheme, x = self.attention_residual, self._split_streams(x)
            h = scheme.pre(x, mask=padding_mask, training=training)
            y = attend(h)
            x = scheme.post(
                scheme.skip(x, h), scheme.drop_path(y, training=training), mask=padding_mask, training=training
            )
            mix = causal(self.convolution, _CONVOLUTION)
            return self._merge_streams(
                self._apply_residual(self.convolution_residual, mix, x, padding_mask, training), padding_mask, training
            )

        if cache is None:
            return self._run(run, inputs, encoder_output, training=training)
        return run(inputs, encoder_output), next_cache

    @property
    def cache_is_rewindable(self) -> bool:
        """Whether decoding can continue from an earlier `cache_index` of the same cache."""
        return all(getattr(layer, "cache_is_rewindable", True) for layer in (self.mixer, self.convolution))

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns the empty cache of the mixer and the convolution for `max_length` tokens."""
        cache = self.mixer.init_cache(batch_size, max_length, dtype)
        return cache | add_prefix(_CONVOLUTION, self.convolution.init_cache(batch_size, max_length, dtype))

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
            "cross_attention": serialize(self.cross_attention),
            "convolution": serialize(self.convolution),
        }
