"""Base class of the decoder blocks."""

from __future__ import annotations

import keras

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.prefixes import add_prefix, drop_prefixes, select_prefix
from keras_transformer.blocks.block import Block
from keras_transformer.blocks.decoders.encoder_attention import CROSS
from keras_transformer.utils.types import Cache, DType

# Prefix of the feed-forward's tensors in the cache.
_FEEDFORWARD = "feedforward_"


class CachedBlock(CachedLayer, Block):
    """Base of the blocks of a causal `mixer` and a `feedforward`, or None, with a cache of both."""

    mixer: keras.layers.Layer
    feedforward: keras.layers.Layer | None

    def _mix(self, x, padding_mask, cache, cache_index, next_cache, **options):
        """Calls the mixer; with a cache, updates `next_cache`."""
        if cache is None:
            return self.mixer(x, x, value_mask=padding_mask, use_causal_mask=True, **options)
        options |= {"cache": self._cache_of_mixer(cache), "cache_index": cache_index}
        mixed, own = self.mixer(x, x, query_mask=padding_mask, use_causal_mask=True, **options)
        next_cache.update(own)
        return mixed

    def _cache_of_mixer(self, cache):
        return drop_prefixes(cache, CROSS, _FEEDFORWARD)

    def _feed_forward_cached(self, x, padding_mask, cache, cache_index, next_cache, training):
        """Calls the feed-forward, like a mixer if it has a cache; then updates `next_cache`."""
        if self.feedforward is None or not hasattr(self.feedforward, "init_cache"):
            return self._feed_forward(x, padding_mask, training)
        options = {"query_mask": padding_mask, "training": training}
        if cache is None:
            return self.feedforward(x, **options)
        options |= {"cache": select_prefix(cache, _FEEDFORWARD), "cache_index": cache_index}
        fed, own = self.feedforward(x, **options)
        next_cache.update(add_prefix(_FEEDFORWARD, own))
        return fed

    @property
    def cache_is_rewindable(self) -> bool:
        """Whether decoding can continue from an earlier `cache_index` of the same cache."""
        return all(getattr(layer, "cache_is_rewindable", True) for layer in (self.mixer, self.feedforward))

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns the empty cache of the mixer, and of a feed-forward that has one, for `max_length` tokens."""
        cache = self.mixer.init_cache(batch_size, max_length, dtype)
        if self.feedforward is not None and hasattr(self.feedforward, "init_cache"):
            cache |= add_prefix(_FEEDFORWARD, self.feedforward.init_cache(batch_size, max_length, dtype))
        return cache
