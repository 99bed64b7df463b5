"""What the decoder of the Evolved Transformer has in front of an ordinary block."""

import keras

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.prefixes import part, prefixed, rest
from keras_transformer.attention.masks import implicit_mask
from keras_transformer.attention.mechanism import check_cross_attention
from keras_transformer.blocks.block import Block
from keras_transformer.blocks.encoder_attention import CROSS, EncoderAttention
from keras_transformer.utils.serialization import resolve, serializable, serialize

# What the convolution's part of the cache is named by.
_CONVOLUTION = "convolution_"


@serializable
class BranchedDecoderBlock(CachedLayer, EncoderAttention, Block):
    """A residual scheme around causal attention and cross-attention side by side, and one around a causal convolution.

    With `residual="pre"`: `x = x + mixer(norm(x)) + cross_attention(norm(x), encoder_output)`, both of the same norm, then
    `x = x + convolution(norm(x))`.

    Args:
        mixer: `MultiHeadAttention`, or another causal layer of its contract, or its config.
        cross_attention: `MultiHeadAttention` or its config.
        convolution: a causal mixer, as `attention.BranchedConvolution`, or its config.
        residual: a name in `RESIDUALS`, or an instance of `Residual`, of which the block makes copies. Default "pre".
        norm: "layer_norm", "rms_norm", "batch_norm", or a norm layer to copy; for a residual given by name.
        dropout: float in [0, 1). Of what each part gives, before it is added.
        seed: int or None. Of the dropout.
        recompute: bool. See `DecoderBlock`.

    Call arguments:
        inputs: float `(B, T, D)`.
        encoder_output: float `(B, S, D_encoder)`; needed, unless a cache holds it.
        padding_mask: boolean `(B, T)`, True = a real token; None for the mask that Keras carries, if any. With a cache it is
            over the new tokens, padded on the right; needed where a cache keeps less than all tokens
            (`cache_is_rewindable` is False).
        encoder_padding_mask: boolean `(B, S)`, likewise.
        cache: dict as `init_cache` returns, with what `memory_cache` returns if asked; or None.
        cache_index: int32 `()` or `(B,)`: the slot of each row's first new token.

    Returns:
        `(B, T, D)`; with a cache, `(output, cache)`.

    Raises:
        ValueError: unknown names; a `cross_attention` that serves self-attention alone; `encoder_output` missing.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import LightweightConvolution, MultiHeadAttention
    >>> attention = [MultiHeadAttention(2, 4) for _ in range(2)]
    >>> block = BranchedDecoderBlock(*attention, LightweightConvolution(2, kernel_size=3))
    >>> tuple(block(np.ones((1, 3, 8)), np.ones((1, 5, 8))).shape)
    (1, 3, 8)
    >>> sorted(block.init_cache(1, max_length=4))
    ['convolution_recent_inputs', 'key', 'value']

    Reference: So et al., The Evolved Transformer, arXiv 1901.11117, figure 3: the upper half of the decoder's cell.
    """

    def __init__(
        self,
        mixer,
        cross_attention,
        convolution,
        residual="pre",
        norm="layer_norm",
        dropout=0.0,
        seed=None,
        recompute=False,
        **kwargs,
    ):
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.cross_attention = resolve(cross_attention, {}, keras.layers.Layer, argument="cross_attention")
        self.convolution = resolve(convolution, {}, keras.layers.Layer, argument="convolution")
        check_cross_attention(self.cross_attention)
        self.attention_residual = self._make_residual("attention_residual")
        self.convolution_residual = self._make_residual("convolution_residual")

    def build(self, inputs_shape, encoder_output_shape=None):
        self._check_encoder_output(encoder_output_shape)
        shape = self._build_streams(self.attention_residual, inputs_shape)
        self._build_around(self.attention_residual, self.mixer, shape, shape)
        self._build_around(self.attention_residual, self.cross_attention, shape, encoder_output_shape)
        self._build_around(self.convolution_residual, self.convolution, shape, shape)

    def call(
        self,
        inputs,
        encoder_output=None,
        padding_mask=None,
        encoder_padding_mask=None,
        cache=None,
        cache_index=None,
        training=None,
    ):
        self._check_encoder_output(encoder_output, cache)
        padding_mask = implicit_mask(inputs) if padding_mask is None and cache is None else padding_mask
        encoder_mask = implicit_mask(encoder_output) if encoder_padding_mask is None else encoder_padding_mask
        next_cache = None if cache is None else dict(cache)

        def causal(layer, prefix):
            """A causal part as a function of its tokens, which takes its part of the cache and leaves the next."""

            def mix(x):
                if cache is None:
                    return layer(x, x, value_mask=padding_mask, use_causal_mask=True, training=training)
                own = part(cache, prefix) if prefix else rest(cache, CROSS, _CONVOLUTION)
                options = {"query_mask": padding_mask, "cache": own, "cache_index": cache_index}
                output, own = layer(x, x, **options, use_causal_mask=True, training=training)
                next_cache.update(prefixed(prefix, own))
                return output

            return mix

        def run(x, *memory):
            def attend(x):
                own = self._dropout_layer(causal(self.mixer, "")(x), training=training)
                crossed = self._attend_encoder(x, *memory, encoder_mask, cache, cache_index, training)
                return own + self._dropout_layer(crossed, training=training)

            scheme, x = self.attention_residual, self._opened(x)
            y = attend(scheme.pre(x, mask=padding_mask, training=training))
            x = scheme.post(x, scheme.drop_path(y, training=training), mask=padding_mask, training=training)
            mix = causal(self.convolution, _CONVOLUTION)
            return self._closed(
                self._around(self.convolution_residual, mix, x, padding_mask, training), padding_mask, training
            )

        if cache is None:
            return self._run(run, inputs, encoder_output, training=training)
        return run(inputs, encoder_output), next_cache

    @property
    def cache_is_rewindable(self):
        """Whether a cache can go back."""
        return all(getattr(layer, "cache_is_rewindable", True) for layer in (self.mixer, self.convolution))

    def init_cache(self, batch_size, max_length, dtype=None):
        """An empty cache of the mixer and the convolution, for `max_length` tokens."""
        cache = self.mixer.init_cache(batch_size, max_length, dtype)
        return cache | prefixed(_CONVOLUTION, self.convolution.init_cache(batch_size, max_length, dtype))

    def compute_output_spec(self, inputs, encoder_output=None, *args, cache=None, **options):
        return self._output_spec(inputs.shape, cache)

    def get_config(self):
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "cross_attention": serialize(self.cross_attention),
            "convolution": serialize(self.convolution),
        }
