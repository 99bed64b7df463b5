"""Long-short range attention: attention and convolution on separate channels."""

from __future__ import annotations

import types
from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.token_mixer import TokenMixer
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, LayerOptions, Shape, Tensor


@serializable
class LongShortRangeAttention(TokenMixer):
    """Long-short range attention (LSRA): `y = concat(attention(x[:A]), convolution(x[A:]))`, with x split by channels.

    Attention is for the global context, convolution for the local one. Any two mixers may be the branches. Time and memory
    grow as those of the branches, each at its width.

    Args:
        attention: a mixer, as `MultiHeadAttention`, for the first `attention_dim` channels.
        convolution: a mixer, as `LightweightConvolution` or `DynamicConvolution`, for the others.
        attention_dim: int in [1, D), or None for half of the width D. A.

    Call arguments: see `TokenMixer`. The mixer supports what both branches support. The cache holds the tensors of both.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: `attention_dim` out of range; the caches of the branches have a name in common; an argument that a
            branch does not support.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import LightweightConvolution, MultiHeadAttention
    >>> layer = LongShortRangeAttention(MultiHeadAttention(2, 4), LightweightConvolution(2, kernel_size=3))
    >>> x = np.ones((1, 5, 16), "float32")
    >>> tuple(layer(x, x).shape)
    (1, 5, 16)

    Reference: Wu et al., Lite Transformer with Long-Short Range Attention, arXiv 2004.11886, section 4.
    """

    def __init__(
        self,
        attention: keras.layers.Layer | Config,
        convolution: keras.layers.Layer | Config,
        attention_dim: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.attention = resolve(attention, {}, keras.layers.Layer, argument="attention")
        self.convolution = resolve(convolution, {}, keras.layers.Layer, argument="convolution")
        self.attention_dim = None if attention_dim is None else positive("attention_dim", attention_dim)
        both = self.attention.supports & self.convolution.supports
        self.supports = both - {"cross", "attention_mask", "scores"}
        self.cache_is_rewindable = self.attention.cache_is_rewindable and self.convolution.cache_is_rewindable

    @property
    def output_dense(self) -> keras.layers.Layer:
        """An object whose `bias` is the output of a zero context: the biases of both branches."""
        biases = [branch.output_dense.bias for branch in (self.attention, self.convolution)]
        return types.SimpleNamespace(bias=ops.concatenate([ops.convert_to_tensor(bias) for bias in biases]))

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        width = query_shape[-1]
        self._split = self.attention_dim or width // 2
        if not 0 < self._split < width:
            raise ValueError(f"attention_dim must be in [1, {width}), the number of channels. Received: {self._split}")
        for branch, size in ((self.attention, self._split), (self.convolution, width - self._split)):
            build_once(branch, (*query_shape[:-1], size), (*query_shape[:-1], size))

    def mix(self, inputs: MixerInputs) -> Tensor:
        visibility = inputs.visibility
        masks = {"query_mask": visibility.query_mask, "value_mask": visibility.key_mask}
        return self._join(inputs, use_causal_mask=visibility.causal, **masks)

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        """Returns the empty caches of both branches in one dict."""
        first, second = (
            branch.init_cache(batch_size, max_length, dtype) for branch in (self.attention, self.convolution)
        )
        if first.keys() & second.keys():
            raise ValueError(f"The caches of the branches have names in common: {sorted(first.keys() & second.keys())}")
        return first | second

    def extend(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        parts, outputs = self._parts(inputs.query), []
        following: Cache = {}
        for branch, part, names in zip((self.attention, self.convolution), parts, self._cache_names(), strict=True):
            output, next_cache = branch(
                part,
                part,
                query_mask=inputs.visibility.query_mask,
                positions=inputs.visibility.query_positions,
                cache={name: inputs.cache[name] for name in names},
                cache_index=inputs.cache_index,
                training=inputs.training,
            )
            outputs.append(output)
            following |= next_cache
        return ops.concatenate(outputs, axis=-1), following

    def _cache_names(self):
        return [list(branch.init_cache(1, 1)) for branch in (self.attention, self.convolution)]

    def _join(self, inputs, **options):
        first, second = self._parts(inputs.query)
        options |= {"positions": inputs.visibility.query_positions, "training": inputs.training}
        return ops.concatenate(
            [self.attention(first, first, **options), self.convolution(second, second, **options)], -1
        )

    def _parts(self, x):
        return x[..., : self._split], x[..., self._split :]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "attention": serialize(self.attention),
            "convolution": serialize(self.convolution),
            "attention_dim": self.attention_dim,
        }
