"""Longformer attention: sliding windows and global tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import check_shapes, positive
from keras_transformer.attention.cache.dense import extend_window_cache, init_window_cache
from keras_transformer.attention.cache.first_tokens import init_first_cache, write_first
from keras_transformer.attention.masks import combine, with_batch_axis
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.mixer import MixerInputs, with_call_argument
from keras_transformer.attention.partition.global_tokens import (
    choose_global,
    of_keys,
    of_queries,
)
from keras_transformer.attention.partition.windows import DilatedWindow
from keras_transformer.attention.softmax.partial_softmax import merge_parts, partial_attention
from keras_transformer.attention.token_mixer import TokenMixer
from keras_transformer.layers.projection import join_heads, split_heads
from keras_transformer.positions import ATTENTION_POSITIONS, AttentionPosition
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, Initializer, LayerOptions, Outputs, Shape, Tensor


@serializable
class LongformerAttention(TokenMixer):
    """Longformer attention: multi-head sliding-window attention with global tokens that have separate projections.

    With w = `attention_window / 2` and the set G of global tokens, the output of a token i that is not global is

        y_i = Σ_j softmax_j(q_i · k_j / √H) v_j   over   {j : |i - j| <= w} ∪ G,   each key once,

    and that of a global token is `Σ_j softmax_j(q'_i · k'_j / √H) v'_j` over all j, where q', k', v' are separate
    projections of the same tokens. If causal, both are limited to j <= i. Time and memory grow with
    `T · (1.25 · attention_window + |G|)`. The result equals that of dense attention with the mask, for any length.

    Args:
        num_heads: int >= 1. N.
        key_dim: int >= 1. Width H of each head, of queries, keys and values.
        attention_window: even int >= 2. The number of keys on both sides together, as in the paper. Defaults to 512.
        dilation: int >= 1, or one for each of the N heads. A window takes every `dilation`-th key. Defaults to 1.
        num_global_tokens: int >= 0. The first tokens of each row that are global, such as `[CLS]` or a question. Defaults
            to 0.
        max_global_tokens: int >= 0. The maximum number of further tokens that a `global_mask` makes global in a row; any
            others stay local. Defaults to 0: no `global_mask`.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance, or None.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        use_bias: bool. Whether the projections have biases.
        kernel_initializer: initializer of the projections.
        seed: int or None. Seed of the dropout.

    Call arguments: those of `MultiHeadAttention`, for self-attention; in addition
        global_mask: boolean `(B, T)`, or None; True = global token.

    Returns:
        The output `(B, T, D_query)`, or `(output, cache)`.

    Raises:
        ValueError: an odd window; a `global_mask` if `max_global_tokens` is 0, or with a cache; an unsupported argument:
            cross-attention, an `attention_mask` or scores.

    Masks: padding at any position. Causal or bidirectional. All positions are supported; those that add to scores or values
    need the same `dilation` for all heads. The cache keeps the last `attention_window / 2 · dilation` tokens and the first
    `num_global_tokens`. Its size does not depend on `max_length`.

    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = LongformerAttention(num_heads=2, key_dim=4, attention_window=2, num_global_tokens=1)
    >>> tuple(layer(np.ones((1, 7, 8)), np.ones((1, 7, 8))).shape)
    (1, 7, 8)

    Reference: Beltagy et al., Longformer, arXiv 2004.05150, section 3. Deviation: causal global tokens, which the paper does
    not have.
    """

    reads_values = True

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        attention_window: int = 512,
        dilation: int | Sequence[int] = 1,
        num_global_tokens: int = 0,
        max_global_tokens: int = 0,
        position: str | Config | AttentionPosition | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.key_dim = positive("key_dim", key_dim)
        if positive("attention_window", attention_window) % 2:
            raise ValueError(f"attention_window must be even: it counts both sides. Received: {attention_window}")
        self.attention_window = attention_window
        self._window = attention_window // 2 + 1
        self.dilation = dilation if isinstance(dilation, int) else tuple(dilation)
        self._dilations = _dilations(dilation, num_heads)
        self.num_global_tokens = num_global_tokens
        self.max_global_tokens = max_global_tokens
        self.position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
        self.dropout = dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.softmax = SoftmaxAttention(dropout=dropout, seed=seed, dtype=self.dtype_policy)
        # A bias, or a term of the context, needs one grid of distances for all heads.
        position_terms = {"bias", "query", "values"} if len(set(self._dilations)) == 1 else set()
        self.supports = frozenset({"causal", "bidirectional", "cache"} | position_terms)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        value_shape = query_shape if value_shape is None else value_shape
        check_shapes(query_shape, value_shape, value_shape if key_shape is None else key_shape)
        names = ["query", "key", "value"]
        if self.num_global_tokens or self.max_global_tokens:
            names += ["query_global", "key_global", "value_global"]
        for name in names:
            dense = split_heads(self, name, self.num_heads, self.key_dim)
            dense.build(query_shape if name.startswith("query") else value_shape)
            setattr(self, f"_{name}_dense", dense)
        heads = (*query_shape[:2], self.num_heads, self.key_dim)
        build_once(self.softmax, heads, heads, heads)
        if self.position is not None:
            build_once(self.position, heads, heads)
        self._output_dense = join_heads(self, "attention_output", query_shape[-1])
        self._output_dense.build(heads)

    output_dense = property(lambda self: self._output_dense)

    @with_call_argument(TokenMixer.call, "global_mask")
    def call(
        self,
        query: Tensor,
        value: Tensor | None = None,
        key: Tensor | None = None,
        *,
        global_mask: Tensor | None = None,
        **arguments: Any,
    ) -> Outputs:
        return self.apply(MixerInputs(query, value, key, extra={"global_mask": global_mask}, **arguments))

    def check(self, inputs: MixerInputs) -> None:
        super().check(inputs)
        if inputs.extra["global_mask"] is None:
            return
        if not self.max_global_tokens:
            raise ValueError("A global_mask needs max_global_tokens: the number of tokens that it can mark in a row.")
        if inputs.cache is not None:
            raise ValueError("With a cache, the global tokens are the first ones: set num_global_tokens.")

    def mix(self, inputs: MixerInputs) -> Tensor:
        return self._output_dense(
            self._attend(_tokens(inputs), inputs.visibility, inputs.extra["global_mask"], inputs.training)
        )

    def extend(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        context, cache = self._extend(
            _tokens(inputs), inputs.visibility, inputs.cache, inputs.cache_index, inputs.training
        )
        return self._output_dense(context), cache

    def _attend(self, tokens, visibility, global_mask, training):
        """Returns the context `(B, T, N, H)` for whole sequences."""
        query, key, value = self._local_heads(tokens, visibility)
        counts = (self.num_global_tokens, self.max_global_tokens)
        chosen, key_mask = choose_global(*counts, global_mask, visibility), visibility.key_mask
        if chosen is not None:
            key_mask = combine(key_mask, ops.logical_not(with_batch_axis(chosen.is_global, ops.shape(query)[0])))
        visible = dataclasses.replace(visibility, key_mask=key_mask)
        window = self._windows(training).part(query, key, value, visible)
        if chosen is None:
            return merge_parts([window])
        visible = of_keys(visibility, chosen)
        chosen_part = partial_attention(
            self.softmax, query, chosen.gather(key), chosen.gather(value), visible, self.position, training=training
        )
        tokens, visible = (chosen.gather(tokens[0]), *tokens[1:]), of_queries(visibility, chosen)
        query, key, value = self._global_heads(tokens, visible)
        seeing = partial_attention(self.softmax, query, key, value, visible, self.position, training=training)
        return chosen.scatter(merge_parts([window, chosen_part]), seeing.context)

    def _windows(self, training: bool | None) -> DilatedWindow:
        return DilatedWindow(self.softmax, self._window, self._dilations, self.position, training)

    def _local_heads(self, tokens, visibility):
        return self._heads((self._query_dense, self._key_dense, self._value_dense), tokens, visibility)

    def _global_heads(self, tokens, visibility):
        denses = (self._query_global_dense, self._key_global_dense, self._value_global_dense)
        return self._heads(denses, tokens, visibility)

    def _heads(self, denses, tokens, visibility):
        query, key, value = (dense(x) for dense, x in zip(denses, tokens, strict=True))
        if self.position is not None:
            positions = (visibility.query_positions, visibility.key_positions)
            query, key = self.position.rotate(query, key, *positions)
        return query, key, value

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        """Returns an empty cache for the tokens of a window and the global tokens."""
        measures = (self.num_heads, self.key_dim, self.key_dim, dtype or self.compute_dtype)
        cache = init_window_cache(batch_size, self.attention_window // 2 * max(self._dilations), *measures)
        if self.num_global_tokens:
            cache |= init_first_cache(batch_size, self.num_global_tokens, *measures)
        return cache

    def _extend(self, tokens, visibility, cache, cache_index, training):
        """Returns the context of new tokens, and the next cache."""
        query, key, value = self._local_heads(tokens, visibility)
        recent = {name: cache[name] for name in ("recent_keys", "recent_values")}
        keys, values, slots, following = extend_window_cache(recent, key, value, cache_index, visibility.query_mask)
        slots = with_batch_axis(slots, ops.shape(keys)[0])
        visible = dataclasses.replace(
            visibility, key_mask=slots >= self.num_global_tokens, key_slots=slots, key_positions=slots
        )
        window = self._windows(training).new_part(query, keys, values, visible)
        if not self.num_global_tokens:
            return merge_parts([window]), following
        heads = self._global_heads(tokens, visibility)
        new = {"first_keys": key, "first_values": value, "global_keys": heads[1], "global_values": heads[2]}
        following |= write_first(cache, new, visibility.query_slots, visibility.query_mask)
        first = ops.arange(self.num_global_tokens, dtype="int32")
        visible = dataclasses.replace(visibility, key_slots=first, key_positions=first)
        first_keys, first_values, global_keys, global_values = (
            ops.cast(ops.transpose(following[name], (0, 2, 1, 3)), key.dtype) for name in new
        )
        options = {"visibility": visible, "position": self.position, "training": training}
        chosen = partial_attention(self.softmax, query, first_keys, first_values, **options)
        seeing = partial_attention(self.softmax, heads[0], global_keys, global_values, **options).context
        is_global = ops.cast(visibility.query_slots < self.num_global_tokens, seeing.dtype)
        is_global = ops.expand_dims(ops.expand_dims(is_global, 2), 3)
        return merge_parts([window, chosen]) * (1 - is_global) + seeing * is_global, following

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "attention_window": self.attention_window,
            "dilation": self.dilation if isinstance(self.dilation, int) else list(self.dilation),
            "num_global_tokens": self.num_global_tokens,
            "max_global_tokens": self.max_global_tokens,
            "position": serialize(self.position),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }


def _tokens(inputs):
    """Returns the inputs of the query, key and value projections."""
    value = inputs.query if inputs.value is None else inputs.value
    return inputs.query, value if inputs.key is None else inputs.key, value


def _dilations(dilation: int | Sequence[int], num_heads: int) -> tuple[int, ...]:
    """The dilation of each head."""
    dilations = (dilation,) * num_heads if isinstance(dilation, int) else tuple(dilation)
    if len(dilations) != num_heads:
        raise ValueError(f"dilation must be one number, or one for each of the {num_heads} heads. Received: {dilation}")
    return tuple(positive("dilation", each) for each in dilations)
