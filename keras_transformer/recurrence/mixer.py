"""What mixers with a state share: the call of `MultiHeadAttention`, what is refused, and what padding is."""

from keras import ops

from keras_transformer.attention.arguments import check_shapes
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import token_slots
from keras_transformer.attention.masks import combine
from keras_transformer.attention.mechanism import check_no_key_mask, check_supported


class Recurrence(CachedLayer):
    """Base of the mixers that carry a state: they stand where `MultiHeadAttention` stands, in a `DecoderBlock`.

    A subclass computes in `mix`, and gives an empty state, all zeros and of one size for any length, in `init_cache`.

    Attributes:
        supports: what is taken into account: causality and a cache. See `attention.Mechanism`.
        cache_is_rewindable: False: a state does not go back, and must be told which new tokens are padding.

    Call arguments:
        query: float `(B, T, D)`.
        value, key: the same tokens, or None.
        query_mask: boolean `(B, T)`, False for padding; with a cache, which then stands on the right.
        value_mask, key_mask: boolean `(B, T)`, likewise; without a cache.
        attention_mask: refused.
        positions: int `(T,)` or `(B, T)`, or None for 0, 1, 2, ..., counted from `cache_index`; see the mixer.
        cache: dict as `init_cache` returns, or None.
        cache_index: int32 `()` or `(B,)`: how many tokens each row has read before.
        use_causal_mask: bool. True, the default: a state knows the past alone.
        return_attention_scores: refused.

    Returns:
        `(B, T, D)`, zeros at padding; with a cache, `(output, next_cache)`.

    Raises:
        ValueError: asked for what it does not honor.
    """

    supports = frozenset({"causal", "cache"})
    cache_is_rewindable = False

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(
        self,
        query,
        value=None,
        key=None,
        *,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        positions=None,
        cache=None,
        cache_index=None,
        use_causal_mask=True,
        return_attention_scores=False,
        training=None,
    ):
        key_mask = combine(value_mask, key_mask)
        lengths = {x.shape[1] for x in (query, value, key) if x is not None} - {None}
        asked = {
            "bidirectional": not use_causal_mask,
            "cross": len(lengths) > 1,
            "attention_mask": attention_mask is not None,
            "scores": return_attention_scores,
        }
        check_supported(self, asked)
        check_no_key_mask(self, key_mask, cache)
        mask = combine(query_mask, key_mask)
        x, per_token = query, None
        if mask is not None:
            mask = ops.cast(mask, "float32")
            per_token = ops.cast(ops.expand_dims(mask, 2), x.dtype)
            # Also for TFLite, which at times wrote over an input of the graph that several layers read as it is.
            x = x * per_token
        if positions is None:
            positions = token_slots(0 if cache_index is None else cache_index, ops.shape(query)[1])
        output, state = self.mix(x, mask, positions, cache, training=training)
        output = output if mask is None else output * per_token
        return output if cache is None else (output, state)

    def mix(self, x, mask, positions, cache, training=None):
        """The output, and the next state.

        Args:
            x: float `(B, T, D)`, zeros at padding.
            mask: float32 `(B, T)`, 0 for padding, or None for no padding. Padding must not change what other tokens give;
                with a cache the next state must be that after the last token that is none.
            positions: int `(T,)` or `(1 | B, T)`.
            cache: dict as `init_cache` returns, or None: then an empty state, and the next one is not asked for.

        Returns:
            `(B, T, D)`, and a dict as `init_cache` returns.
        """
        raise NotImplementedError

    def init_cache(self, batch_size, max_length=None, dtype=None):
        """The state before the first token: dict of float32 zeros, whose size does not depend on `max_length`."""
        raise NotImplementedError

    def _width(self):
        """D, once it is known."""
        if not self.built:
            raise ValueError(
                f"{self.name} ({type(self).__name__}) keeps a state as wide as its tokens: build it first."
            )
        return self._built_width

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return query_shape

    def compute_output_spec(self, query, value=None, key=None, *, cache=None, **options):
        value_shape = query.shape if value is None else value.shape
        if value_shape[1] == query.shape[1]:
            check_shapes(query.shape, value_shape, value_shape if key is None else key.shape)
        return self._output_spec(self.compute_output_shape(query.shape), cache)
