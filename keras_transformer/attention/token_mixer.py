"""The contract of a mixer of one sequence whose projections are its own."""

from keras import ops

from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import token_slots
from keras_transformer.attention.masks import Visibility, combine
from keras_transformer.attention.mechanism import check_no_key_mask, check_supported


class TokenMixer(CachedLayer):
    """Base of self-attention layers and convolutions that stand where `MultiHeadAttention` stands, with the same call.

    A subclass computes `mix`, over a whole sequence, and `extend`, over new tokens with a cache; makes `init_cache`; has
    `output_dense`, its last projection; and says in `supports` what it takes into account.

    Attributes:
        supports: see `Mechanism`.
        cache_is_rewindable: bool. Whether a cache can go back to an earlier index. If not, padding among new tokens is
            marked by `query_mask`, and stands on the right.
        position: an `AttentionPosition`, or None.

    Call arguments:
        query: float `(B, T, D)`.
        value: the same tokens; it is not read.
        query_mask, value_mask, key_mask: boolean `(B, T)`: False for padding, which gives a zero context and touches
            nothing; where a cache rewinds, value and key masks cover its slots.
        positions: int `(T,)` or `(B, T)`, for the position; None for 0, 1, 2, ..., counted from `cache_index`.
        cache: dict as `init_cache` returns; makes the mixer causal.
        cache_index: int32 `()` or `(B,)`: the slot of each row's first new token.
        use_causal_mask: bool. The default is False, but for a mixer that is causal by nature.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: asked for what it does not honor; a key mask with a cache that does not rewind.
    """

    supports = frozenset({"causal", "bidirectional", "cache"})
    cache_is_rewindable = False
    position = None

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(
        self,
        query,
        value,
        key=None,
        *,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        positions=None,
        cache=None,
        cache_index=None,
        use_causal_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        key_mask = combine(key_mask, value_mask)
        if use_causal_mask is None:
            use_causal_mask = "bidirectional" not in self.supports
        self._refuse(query, value, key, key_mask, attention_mask, cache, use_causal_mask, return_attention_scores)
        slots = token_slots(0 if cache is None else cache_index, ops.shape(query)[1])
        if cache is None:  # The tokens are queries and keys: what is padding is no key.
            query_mask = key_mask = combine(query_mask, key_mask)
        positions = slots if positions is None else positions
        visibility = Visibility(
            query_mask=query_mask,
            key_mask=key_mask,
            causal=use_causal_mask or cache is not None,
            query_slots=slots,
            key_slots=slots,
            query_positions=positions,
            key_positions=positions,
        )
        if cache is None:
            return self.mix(query, visibility, training=training)
        return self.extend(query, cache, cache_index, visibility, training=training)

    def mix(self, x, visibility, training=None):
        """The output `(B, T, D)` of whole sequences; both masks are that of the tokens."""
        raise NotImplementedError

    def extend(self, x, cache, cache_index, visibility, training=None):
        """The output of new tokens, and the next cache."""
        raise NotImplementedError

    def init_cache(self, batch_size, max_length, dtype=None):
        """An empty cache for `max_length` tokens."""
        raise NotImplementedError

    def _refuse(self, query, value, key, key_mask, attention_mask, cache, causal, scores):
        lengths = (query.shape[1], value.shape[1])
        asked = {
            "causal": causal,
            "bidirectional": not causal and cache is None,
            "cross": key is not None or (None not in lengths and lengths[0] != lengths[1]),
            "attention_mask": attention_mask is not None,
            "scores": scores,
            **dict.fromkeys(() if self.position is None else self.position.needs, True),
        }
        check_supported(self, asked)
        check_no_key_mask(self, key_mask, cache)

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return tuple(query_shape)

    def compute_output_spec(self, query, value, key=None, *, cache=None, **options):
        return self._output_spec(query.shape, cache)


def zero_masked(x, mask):
    """Zeros in `(B, T, ...)` where a boolean mask `(B, T)` is False; None masks nothing."""
    if mask is None:
        return x
    return x * ops.cast(ops.expand_dims(mask, tuple(range(2, len(x.shape)))), x.dtype)
