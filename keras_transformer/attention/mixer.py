"""The interface of token mixers, and the arguments of their calls."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from keras import ops

from keras_transformer.attention.cache.dense import token_slots
from keras_transformer.attention.masks import Visibility, combine
from keras_transformer.utils.types import Cache, Outputs, Tensor

if TYPE_CHECKING:
    import keras


@runtime_checkable
class Mixer(Protocol):
    """Interface of a token mixer: the sub-layer of a block that mixes the tokens of a sequence.

    `MultiHeadAttention`, the layers in `MIXERS` and those in `recurrence.RECURRENCES` implement it.

    Attributes:
        supports: frozenset of str: what the mixer takes into account. See `Mechanism`.
        cache_is_rewindable: bool. Whether a cache can return to an earlier index. If not, `query_mask` marks padding among
            the new tokens, and padding is on the right.
        output_dense: the last projection. Its `bias` is the output of a zero context.
    """

    @property
    def supports(self) -> frozenset[str]: ...

    @property
    def cache_is_rewindable(self) -> bool: ...

    @property
    def output_dense(self) -> keras.layers.Layer: ...

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        """Returns an empty cache for `max_length` tokens."""
        ...

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        *,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        cache_index: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Outputs:
        """Returns the output `(B, T, D)`; with a cache, `(output, next_cache)`."""
        ...


@dataclasses.dataclass(frozen=True)
class MixerInputs:
    """Arguments of a call of a `TokenMixer`, as its `mix` and `extend` receive them, or of `MultiHeadAttention`.

    Attributes:
        query, value, key: float `(B, T, D)`. `value` and `key` may be None.
        query_mask, value_mask, key_mask, attention_mask: as in `TokenMixer`. In `mix` and `extend`, `key_mask` includes
            `value_mask`.
        positions, cache, cache_index, return_attention_scores, training: as in `TokenMixer`.
        use_causal_mask: bool, or None for the default of the mixer. In `mix` and `extend`, a bool.
        prefix_length, segment_ids: as in `MultiHeadAttention`.
        extra: dict: call arguments that only this mixer has.
    """

    query: Tensor
    value: Tensor | None = None
    key: Tensor | None = None
    query_mask: Tensor | None = None
    value_mask: Tensor | None = None
    key_mask: Tensor | None = None
    attention_mask: Tensor | None = None
    positions: Tensor | None = None
    cache: Any = None
    cache_index: Tensor | None = None
    use_causal_mask: bool | None = None
    return_attention_scores: bool = False
    training: bool | None = None
    prefix_length: Tensor | None = None
    segment_ids: Tensor | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def visibility(self) -> Visibility:
        """Masks, slots and positions of the tokens, as queries and as keys."""
        slots = token_slots(0 if self.cache is None else self.cache_index, ops.shape(self.query)[1])
        positions = slots if self.positions is None else self.positions
        return Visibility(
            query_mask=self.query_mask,
            key_mask=self.key_mask,
            causal=bool(self.use_causal_mask),
            query_slots=slots,
            key_slots=slots,
            query_positions=positions,
            key_positions=positions,
        )

    def visibility_of_keys(self, key_length: int, window: int | None = None) -> Visibility:
        """Masks, slots and positions of queries and keys that may be different tokens, as of cross-attention.

        Args:
            key_length: int. The number of keys, which may come from a cache.
            window: as in `Visibility`.
        """
        length = ops.shape(self.query)[1]
        if self.cache_index is None:
            query_slots, key_slots = (ops.arange(size, dtype="int32") for size in (length, key_length))
        else:
            query_slots = key_slots = token_slots(self.cache_index, length)
        given = self.positions if isinstance(self.positions, (tuple, list)) else (self.positions, self.positions)
        query_positions, key_positions = given
        if self.prefix_length is not None and window is not None:
            raise ValueError("A prefix whose tokens attend to one another has no sliding window.")
        query_mask, key_mask, segment_ids = self.query_mask, combine(self.key_mask, self.value_mask), self.segment_ids
        if segment_ids is not None:  # Padding is segment 0.
            is_real = combine(query_mask, key_mask)
            query_mask = key_mask = None
            segment_ids = segment_ids if is_real is None else ops.where(is_real, segment_ids, 0)
        return Visibility(
            query_mask=query_mask,
            key_mask=key_mask,
            attention_mask=self.attention_mask,
            segment_ids=segment_ids,
            causal=bool(self.use_causal_mask) or self.extends_cache,
            window=window,
            # Of a prefix, every token attends to what the last one does.
            query_slots=query_slots
            if self.prefix_length is None
            else ops.maximum(query_slots, ops.expand_dims(self.prefix_length, -1) - 1),
            key_slots=key_slots,
            query_positions=query_slots if query_positions is None else query_positions,
            key_positions=key_slots if key_positions is None else key_positions,
            starts_at_zero=self.cache is None and self.prefix_length is None,
        )

    @property
    def extends_cache(self) -> bool:
        """Whether the tokens are new tokens, which are added to a cache."""
        return self.cache is not None and self.cache_index is not None

    @property
    def reads_memory(self) -> bool:
        """Whether a cache contains all keys and values, as `MultiHeadAttention.memory_cache` returns it."""
        return self.cache is not None and self.cache_index is None

    @property
    def is_cross(self) -> bool:
        """Whether keys or values are known to have another length than the queries."""
        return len({x.shape[1] for x in (self.query, self.value, self.key) if x is not None} - {None}) > 1


def with_call_argument(
    base_call: Callable[..., object], name: str
) -> Callable[[Callable[..., Outputs]], Callable[..., Outputs]]:
    """Returns a decorator for a `call` that adds the keyword argument `name`, None by default, to those of `base_call`.

    Keras passes masks and `training` by the names in the signature of `call`. The decorated function takes the arguments of
    `base_call` as `**arguments`; its signature lists them.
    """

    def decorate(call: Callable[..., Outputs]) -> Callable[..., Outputs]:
        signature = inspect.signature(base_call)
        added = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Tensor)
        parameters = [*signature.parameters.values(), added]
        setattr(call, "__signature__", signature.replace(parameters=parameters))  # noqa: B010
        return call

    return decorate
