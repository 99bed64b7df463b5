"""The decoder block."""

import keras

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.prefixes import part, prefixed, rest
from keras_transformer.attention.masks import implicit_mask
from keras_transformer.attention.mechanism import check_cross_attention
from keras_transformer.blocks.block import Block
from keras_transformer.blocks.encoder_attention import CROSS, EncoderAttention
from keras_transformer.utils.serialization import resolve, serializable, serialize

# What a feed-forward's part of the cache is named by.
_FEEDFORWARD = "feedforward_"


@serializable
class DecoderBlock(CachedLayer, EncoderAttention, Block):
    """A causal mixer, cross-attention if asked, and a feed-forward, each inside a residual scheme.

    Args:
        mixer: `MultiHeadAttention`, or another causal layer of its contract, or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config; one with a cache, such as `recurrence.ChannelMixing`,
            is called as a mixer is. None for a block that mixes alone.
        cross_attention: `MultiHeadAttention` or its config; None for a decoder-only block.
        residual: a name in `RESIDUALS`, or an instance of `Residual`, of which the block makes copies. Default "pre".
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy; for a residual given by name.
        dropout: float in [0, 1). Of what each sublayer gives, before it is added.
        seed: int or None. Of the dropout.
        recompute: bool. Whether, in training, the block keeps only its inputs for the backward pass, and computes the rest
            again there: less memory, a third more time. `training.recompute_blocks` sets it in a whole model.

    Call arguments:
        inputs: float `(B, T, D)`.
        encoder_output: float `(B, S, D_encoder)`; needed with cross-attention, unless a cache holds it; refused without.
        padding_mask: boolean `(B, T)`, True = a real token; None for the mask that Keras carries, if any. With a cache it is
            over the new tokens, padded on the right; needed where a cache keeps less than all tokens
            (`cache_is_rewindable` is False).
        encoder_padding_mask: boolean `(B, S)`, likewise.
        attention_mask: boolean `(T, T)`, `(B, T, T)` or `(B, N, T, T)`, on top of causality.
        positions: int `(T,)` or `(B, T)`; see `MultiHeadAttention`.
        cache: dict as `init_cache` returns, with what `memory_cache` returns if asked; or None.
        cache_index: int32 `()` or `(B,)`: the slot of each row's first new token.

    Returns:
        `(B, T, D)`; with a cache, `(output, cache)`.

    Raises:
        ValueError: unknown names; a `cross_attention` that serves self-attention alone; `encoder_output` missing, or not
            wanted.

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
        mixer,
        feedforward,
        cross_attention=None,
        residual="pre",
        norm="layer_norm",
        dropout=0.0,
        seed=None,
        recompute=False,
        **kwargs,
    ):
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.cross_attention = resolve(cross_attention, {}, keras.layers.Layer, argument="cross_attention")
        check_cross_attention(self.cross_attention)
        self.mixer_residual = self._make_residual("mixer_residual")
        self.cross_attention_residual = cross_attention and self._make_residual("cross_attention_residual")
        self.feedforward_residual = feedforward and self._make_residual("feedforward_residual")

    def build(self, inputs_shape, encoder_output_shape=None):
        self._check_encoder_output(encoder_output_shape)
        shape = self._build_streams(self.mixer_residual, inputs_shape)
        self._build_around(self.mixer_residual, self.mixer, shape, shape)
        if self.cross_attention is not None:
            self._build_around(self.cross_attention_residual, self.cross_attention, shape, encoder_output_shape)
        if self.feedforward is not None:
            self._build_around(self.feedforward_residual, self.feedforward, shape)

    def call(
        self,
        inputs,
        encoder_output=None,
        padding_mask=None,
        encoder_padding_mask=None,
        attention_mask=None,
        positions=None,
        cache=None,
        cache_index=None,
        training=None,
    ):
        self._check_encoder_output(encoder_output, cache)
        padding_mask = implicit_mask(inputs) if padding_mask is None and cache is None else padding_mask
        encoder_mask = implicit_mask(encoder_output) if encoder_padding_mask is None else encoder_padding_mask
        next_cache = None if cache is None else dict(cache)

        def mix(x):
            options = {"attention_mask": attention_mask, "positions": positions, "training": training}
            if cache is None:
                return self.mixer(x, x, value_mask=padding_mask, use_causal_mask=True, **options)
            options |= {"cache": rest(cache, CROSS, _FEEDFORWARD), "cache_index": cache_index}
            mixed, own = self.mixer(x, x, query_mask=padding_mask, use_causal_mask=True, **options)
            next_cache.update(own)
            return mixed

        def feed_forward(x):
            if not hasattr(self.feedforward, "init_cache"):
                return self._feed(x, padding_mask, training)
            options = {"query_mask": padding_mask, "training": training}
            if cache is None:
                return self.feedforward(x, **options)
            options |= {"cache": part(cache, _FEEDFORWARD), "cache_index": cache_index}
            fed, own = self.feedforward(x, **options)
            next_cache.update(prefixed(_FEEDFORWARD, own))
            return fed

        def run(x, encoder_output=None):
            def attend_encoder(x):
                return self._attend_encoder(x, encoder_output, encoder_mask, cache, cache_index, training)

            x = self._around(self.mixer_residual, mix, self._opened(x), padding_mask, training)
            if self.cross_attention is not None:
                x = self._around(self.cross_attention_residual, attend_encoder, x, padding_mask, training)
            if self.feedforward is not None:
                x = self._around(self.feedforward_residual, feed_forward, x, padding_mask, training)
            return self._closed(x, padding_mask, training)

        if cache is None:
            memory = [] if encoder_output is None else [encoder_output]
            return self._run(run, inputs, *memory, training=training)
        return run(inputs, encoder_output), next_cache

    @property
    def cache_is_rewindable(self):
        """Whether a cache can go back."""
        return all(getattr(layer, "cache_is_rewindable", True) for layer in (self.mixer, self.feedforward))

    def init_cache(self, batch_size, max_length, dtype=None):
        """An empty cache of the mixer, and of a feed-forward that has one, for `max_length` tokens."""
        cache = self.mixer.init_cache(batch_size, max_length, dtype)
        if hasattr(self.feedforward, "init_cache"):
            cache |= prefixed(_FEEDFORWARD, self.feedforward.init_cache(batch_size, max_length, dtype))
        return cache

    def compute_output_spec(self, inputs, encoder_output=None, *args, cache=None, **options):
        return self._output_spec(inputs.shape, cache)

    def get_config(self):
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "feedforward": serialize(self.feedforward),
            "cross_attention": serialize(self.cross_attention),
        }
