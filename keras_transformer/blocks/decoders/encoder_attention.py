"""Cross-attention of decoder blocks to the output of an encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras import ops

from keras_transformer.attention.cache.dense import token_slots
from keras_transformer.attention.cache.prefixes import add_prefix, select_prefix
from keras_transformer.utils.types import Cache, Tensor

if TYPE_CHECKING:
    import keras

# Prefix of the cross-attention's tensors in the cache.
CROSS = "cross_"


class EncoderAttention:
    """Mixin of blocks whose `cross_attention` reads the output of an encoder, or its cached keys and values."""

    name: str
    cross_attention: keras.layers.Layer

    def memory_cache(self, encoder_output: Tensor) -> Cache:
        """Returns the cross-attention's keys and values, "cross_key" and "cross_value", to be added to the cache once."""
        return add_prefix(CROSS, self.cross_attention.memory_cache(encoder_output))

    def _check_encoder_output(self, encoder_output, cache=None):
        if has_encoder_cache(cache):
            return
        if self.cross_attention is not None and encoder_output is None:
            raise ValueError(f"{self.name} has cross-attention: call it with encoder_output.")
        if self.cross_attention is None and encoder_output is not None:
            raise ValueError(f"{self.name} has no cross-attention: it takes no encoder_output.")

    def _attend_encoder(self, x, encoder_output, mask, cache, cache_index, training):
        if not has_encoder_cache(cache):
            return self.cross_attention(x, encoder_output, value_mask=mask, training=training)
        positions = (token_slots(cache_index, ops.shape(x)[1]), None)
        return self.cross_attention(x, None, value_mask=mask, positions=positions, cache=select_prefix(cache, CROSS))[0]


def has_encoder_cache(cache: Cache | None) -> bool:
    """Whether a cache contains the tensors of `memory_cache`."""
    return cache is not None and f"{CROSS}key" in cache
