"""Multi-head attention: projections, heads, positions and cache around an attention mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_transformer.attention import capture
from keras_transformer.attention.arguments import (
    check_key_shape,
    check_shapes,
    key_value_heads,
    output_shape_tuple,
    positive,
)
from keras_transformer.attention.axes import AttentionAxes, attention_axes_tuple
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import (
    cache_length,
    cache_spec,
    check_key_mask,
    fill_dense_cache,
    read_dense_cache,
    token_slots,
)
from keras_transformer.attention.masks import Visibility, combine
from keras_transformer.attention.mechanism import Mechanism, check_supported
from keras_transformer.attention.mechanisms import MECHANISMS
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.layers.norms import NORMS
from keras_transformer.layers.projection import Projection
from keras_transformer.positions import ATTENTION_POSITIONS, AttentionPosition
from keras_transformer.utils.serialization import (
    build_once,
    choice,
    clone,
    resolve,
    serializable,
    serialize,
    serialize_shared,
)
from keras_transformer.utils.types import Cache, Config, Constraint, DType, Initializer, Regularizer, Shape, Tensor


@serializable
class MultiHeadAttention(CachedLayer):
    """Multi-head, multi-query or grouped-query attention with any mechanism.

    `concat_n(mechanism(x_q W_q^n, x_k W_k^{n'}, x_v W_v^{n'})) W_o`, where query head n uses key/value head
    `n' = floor(n K / N)`. A drop-in replacement for `keras.layers.MultiHeadAttention` with the same constructor, call, and
    order and shapes of weights. It adds grouped heads, mechanisms, positions and a cache.

    Args:
        num_heads: int >= 1. Number of query heads N.
        key_dim: int >= 1. Width of each query and key head.
        value_dim: int >= 1, or None for `key_dim`. Width of each value head.
        dropout: float in [0, 1). Dropout rate of the attention weights. With a `mechanism` instance, set it there.
        use_bias: bool. Whether the projections have biases.
        output_shape: int or tuple of ints: the shape of each output vector. None for the width of the query.
        attention_axes: int, or tuple of ints, or None for all axes between batch and features. The axes that attention runs
            over; the others are treated as batch axes (axial attention over images and videos).
        sliding_window: int >= 1, or None. Masks keys `sliding_window` or more positions away, on both sides, as Keras does.
            The full score matrix is still computed.
        flash_attention: bool or None. See `SoftmaxAttention`.
        kernel_initializer, bias_initializer: of the projections.
        kernel_regularizer, bias_regularizer, activity_regularizer: of the projections.
        kernel_constraint, bias_constraint: of the projections.
        use_gate: bool. Whether `sigmoid(x_q W_g)` multiplies the context before the output projection.
        seed: int or None. Seed of the dropout.
        num_key_value_heads: int that divides `num_heads`, or None for `num_heads`. 1 is multi-query attention.
        mechanism: a name in `MECHANISMS`, or an instance.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance, or None.
        use_key_bias: bool, or None for `use_bias`. Whether the key projection has a bias. It has no effect on softmax
            attention without positions.
        use_output_bias: bool, or None for `use_bias`. Whether the output projection has a bias.
        query_key_norm: None, "layer_norm", "rms_norm", or a norm layer to copy. Normalizes each query and each key head
            before rotation.
        context_norm: None, "layer_norm", "rms_norm", or a norm layer to copy. Normalizes the concatenated contexts of all
            heads, before the gate and the output projection.

    Call arguments:
        query: float `(B, T, D_query)`, or of higher rank: `(B, ..., D_query)`.
        value: float `(B, S, D_value)`, or of the rank of the query. None with a cache of `memory_cache`.
        key: float `(B, S, D_key)`, or None for `value`.
        query_mask: boolean `(B, T)`. Keras passes the implicit mask, as of `Embedding(mask_zero=True)`.
        value_mask, key_mask: boolean `(B, S)`; with a cache, `(B, L)` over its slots.
        attention_mask: boolean `(T, S)`, `(B, T, S)` or `(B, N, T, S)`; True = may attend. See
            `AttentionAxes.fold_attention_mask` for higher ranks.
        positions: int `(T,)` or `(B, T)`: positions of queries and keys; a pair of them if queries and keys are different
            tokens; None for 0, 1, 2, ..., counted from `cache_index`. Used by position objects only: causal masks depend on
            the order of the tokens. For inputs of rank 3.
        cache: dict as `init_cache` returns: attention is causal. Or as `memory_cache` returns: it is not updated. For inputs
            of rank 3.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row; None with a `memory_cache`.
        use_causal_mask: bool. Whether a query attends only to keys up to its own index (of several attention axes, in
            row-major order).
        return_attention_scores: bool.

    Returns:
        The output `(B, T, D_query)`, or `(output, scores)`, `(output, cache)`, `(output, scores, cache)` as requested.
        Scores are `(B, N, T, S)`; with inputs of higher rank, `(B, *F, N, *T, *S)` for the sizes F of the batch axes and the
        sizes T and S of the attention axes.

    Raises:
        ValueError: invalid arguments; key and value of unequal length; a mask that does not cover the slots of the cache;
            a full cache.

    Masks: boolean, combined by "and". A query whose keys are all masked has a zero context.
    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = MultiHeadAttention(num_heads=4, key_dim=8, num_key_value_heads=2, position="rotary")
    >>> x = np.ones((1, 5, 32), "float32")
    >>> tuple(layer(x, x, use_causal_mask=True).shape)
    (1, 5, 32)
    >>> cache = layer.init_cache(batch_size=1, max_length=8)
    >>> output, cache = layer(x, x, cache=cache, cache_index=0)
    >>> tuple(cache["key"].shape)
    (1, 2, 8, 8)

    Reference: Vaswani et al., arXiv 1706.03762, section 3.2.2; Shazeer, arXiv 1911.02150 (multi-query); Ainslie et al.,
    arXiv 2305.13245 (grouped-query); Qiu et al., arXiv 2505.06708 (gate); Dehghani et al., arXiv 2302.05442, section 2.1
    (norms of queries and keys); Wang et al., Magneto, arXiv 2210.06423, section 2.2 (norm of the context).
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: int | Sequence[int] | None = None,
        attention_axes: int | Sequence[int] | None = None,
        sliding_window: int | None = None,
        flash_attention: bool | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        activity_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        use_gate: bool = False,
        seed: int | None = None,
        *,
        num_key_value_heads: int | None = None,
        mechanism: str | Config | Mechanism = "softmax",
        position: str | Config | AttentionPosition | None = None,
        use_key_bias: bool | None = None,
        use_output_bias: bool | None = None,
        query_key_norm: str | Config | keras.layers.Layer | None = None,
        context_norm: str | Config | keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self._num_heads = positive("num_heads", num_heads)
        self._key_dim = positive("key_dim", key_dim)
        self._value_dim = key_dim if value_dim is None else positive("value_dim", value_dim)
        self._num_key_value_heads = key_value_heads(num_key_value_heads, num_heads)
        self._sliding_window = None if sliding_window is None else positive("sliding_window", sliding_window)
        self._output_shape = output_shape_tuple(output_shape)
        self._attention_axes = attention_axes_tuple(attention_axes)
        self._dropout = dropout
        self._use_bias = use_bias
        self._use_key_bias = use_key_bias
        self._use_output_bias = use_output_bias
        self._use_gate = use_gate
        self._flash_attention = flash_attention
        self._kernel_initializer = keras.initializers.get(kernel_initializer)
        self._bias_initializer = keras.initializers.get(bias_initializer)
        self._kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self._bias_regularizer = keras.regularizers.get(bias_regularizer)
        self._activity_regularizer = keras.regularizers.get(activity_regularizer)
        self._kernel_constraint = keras.constraints.get(kernel_constraint)
        self._bias_constraint = keras.constraints.get(bias_constraint)
        self.seed = seed
        self.position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
        self.query_key_norm = resolve(query_key_norm, NORMS, keras.layers.Layer, argument="query_key_norm")
        self._query_norm, self._key_norm = (
            clone(self.query_key_norm, name=name, dtype=self.dtype_policy) for name in ("query_norm", "key_norm")
        )
        self.context_norm = resolve(context_norm, NORMS, keras.layers.Layer, argument="context_norm")
        self._context_norm = clone(self.context_norm, name="context_norm", dtype=self.dtype_policy)
        self._mechanism_name = mechanism if isinstance(mechanism, str) else None
        self.mechanism = self._make_mechanism(mechanism)

    def _make_mechanism(self, mechanism):
        if not isinstance(mechanism, str):
            if self._dropout or self._flash_attention is not None:
                raise ValueError("With a mechanism instance, set dropout and flash_attention on the mechanism.")
            return resolve(mechanism, MECHANISMS, Mechanism, argument="mechanism")
        options = {"dropout": self._dropout, "seed": self.seed, "dtype": self.dtype_policy}
        mechanism = choice(mechanism, MECHANISMS, argument="mechanism")
        if mechanism is SoftmaxAttention:
            options["flash_attention"] = self._flash_attention
        elif self._flash_attention:
            raise ValueError(f"flash_attention is for mechanism='softmax'. Received: {mechanism.__name__}")
        return mechanism(**options)

    num_heads = property(lambda self: self._num_heads)
    num_key_value_heads = property(lambda self: self._num_key_value_heads)
    key_dim = property(lambda self: self._key_dim)
    value_dim = property(lambda self: self._value_dim)
    dropout = property(lambda self: self._dropout)
    use_bias = property(lambda self: self._use_bias)
    attention_axes = property(lambda self: self._attention_axes)
    query_dense = property(lambda self: self._query_dense)
    key_dense = property(lambda self: self._key_dense)
    value_dense = property(lambda self: self._value_dense)
    output_dense = property(lambda self: self._output_dense)

    supports = property(lambda self: self.mechanism.supports, doc="What the mechanism supports: see `Mechanism`.")
    cache_is_rewindable = property(
        lambda self: self.mechanism.cache_is_rewindable, doc="Whether a cache can return to an earlier index."
    )

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        key_shape = value_shape if key_shape is None else key_shape
        axes = self._axes(query_shape, value_shape, key_shape)
        query_shape, value_shape, key_shape = (axes.fold_shape(x) for x in (query_shape, value_shape, key_shape))
        heads, key_value_heads = self._num_heads, self._num_key_value_heads
        self._query_dense = self._project_in("query", heads, self._key_dim)
        self._query_dense.build(query_shape)
        self._key_dense = None
        if not self.mechanism.shares_key:
            self._key_dense = self._project_in("key", key_value_heads, self._key_dim)
            self._key_dense.build(key_shape)
        if self._use_gate:
            self._gate_dense = self._project_in("gate", heads, self._value_dim, activation="sigmoid")
            self._gate_dense.build(query_shape)
        self._value_dense = None
        if not self.mechanism.shares_value:
            self._value_dense = self._project_in("value", key_value_heads, self._value_dim)
            self._value_dense.build(value_shape)
        queries, keys = (*query_shape[:2], heads, self._key_dim), (*key_shape[:2], key_value_heads, self._key_dim)
        values = (*value_shape[:2], key_value_heads, self._value_dim)
        if self.query_key_norm is not None:
            self._query_norm.build(queries)
            self._key_norm.build(keys)
        build_once(self.mechanism, queries, keys, values)
        if self.position is not None:
            build_once(self.position, queries, values)
        if self.context_norm is not None:
            self._context_norm.build((*query_shape[:2], heads * self._value_dim))
        self._output_dense = self._project_out(self._output_shape or (query_shape[-1],))
        self._output_dense.build((*query_shape[:2], heads, self._value_dim))

    def _project_in(self, name, heads, width, activation=None):
        own = self._use_key_bias if name == "key" else None
        return Projection(
            "btd,dnh->btnh",
            output_shape=(None, heads, width),
            bias_axes="nh" if self._has_bias(own) else None,
            activation=activation,
            name=name,
            **self._projection_options(),
        )

    def _project_out(self, output_shape):
        axes = "defg"[: len(output_shape)]
        return Projection(
            f"btnh,nh{axes}->bt{axes}",
            output_shape=(None, *output_shape),
            bias_axes=axes if self._has_bias(self._use_output_bias) else None,
            name="attention_output",
            **self._projection_options(),
        )

    def _has_bias(self, own):
        """Whether a projection has a bias; `own` is its setting, or None for `use_bias`."""
        return self._use_bias if own is None else own

    def _projection_options(self):
        # A shared initializer would make equal weights.
        return {
            "kernel_initializer": self._kernel_initializer.clone(),
            "bias_initializer": self._bias_initializer.clone(),
            "kernel_regularizer": self._kernel_regularizer,
            "bias_regularizer": self._bias_regularizer,
            "activity_regularizer": self._activity_regularizer,
            "kernel_constraint": self._kernel_constraint,
            "bias_constraint": self._bias_constraint,
            "dtype": self.dtype_policy,
        }

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
    ) -> Any:
        if len(query.shape) > 3:
            self._refuse_cache(cache=cache, cache_index=cache_index, positions=positions)
            masks = (query_mask, value_mask, key_mask, attention_mask)
            options = {"return_attention_scores": return_attention_scores, "training": training}
            return self._call_over_axes(query, value, key, masks, use_causal_mask=use_causal_mask, **options)
        key = value if key is None else key
        gate = self._gate_dense(query) if self._use_gate else None
        is_extended = cache is not None and cache_index is not None
        query = self._query_dense(query)  # (B, T, N, H)
        if cache is None or is_extended:
            key = query if self._key_dense is None else self._key_dense(key)  # (B, S, K, H)
            key = key if self._key_norm is None else self._key_norm(key)
            value = self._values(value, query)  # (B, S, K, H_value)
        else:
            key, value = read_dense_cache(cache, query.dtype)
            check_key_mask(cache, combine(key_mask, value_mask))
        query = query if self._query_norm is None else self._query_norm(query)
        query_slots, key_slots = _slots(query, key, cache_index)
        query_positions, key_positions = _positions(positions, query_slots, key_slots)
        if self.position is not None and not self.mechanism.applies_rotation:
            query, rotated = self.position.rotate(query, key, query_positions, key_positions)
            key = rotated if cache is None or is_extended else key
        visibility = Visibility(
            query_mask=query_mask,
            key_mask=combine(key_mask, value_mask),
            attention_mask=attention_mask,
            causal=use_causal_mask or is_extended,
            window=self._sliding_window,
            query_slots=query_slots,
            key_slots=key_slots,
            query_positions=query_positions,
            key_positions=key_positions,
            starts_at_zero=cache is None,
        )
        past = (cache, cache_index) if is_extended else (None, None)
        result = self._attend(query, key, value, visibility, past, return_attention_scores, training)
        context, scores, cache = (*result, cache) if not is_extended else result
        context = context if self.context_norm is None else self._normed(context)
        output = self._output_dense(context if gate is None else context * gate)
        parts = (output, scores if return_attention_scores else None, cache)
        returned = tuple(part for part in parts if part is not None)
        return returned[0] if len(returned) == 1 else returned

    def _call_over_axes(self, query, value, key, masks, use_causal_mask, return_attention_scores, training):
        """Calls the layer on inputs of rank above 3, with all but the attention axes folded into the batch."""
        axes = self._axes(query.shape, value.shape, value.shape if key is None else key.shape)
        captured = capture.is_captured(self)
        query_mask, value_mask, key_mask, attention_mask = masks
        result = self.call(
            axes.fold(query),
            axes.fold(value),
            None if key is None else axes.fold(key),
            query_mask=axes.fold_token_mask(query_mask, query),
            value_mask=axes.fold_token_mask(value_mask, value),
            key_mask=axes.fold_token_mask(key_mask, value),
            attention_mask=axes.fold_attention_mask(attention_mask, query, value),
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores or captured,
            training=training,
        )
        output, scores = result if return_attention_scores or captured else (result, None)
        output = axes.unfold(output, query)
        if scores is None:
            return output
        scores = axes.unfold_scores(scores, query, value)
        if captured:
            capture.record(self, scores)
        return (output, scores) if return_attention_scores else output

    def _axes(self, query_shape, value_shape, key_shape):
        """Returns the attention axes of inputs of these shapes; raises `ValueError` for incompatible shapes."""
        check_key_shape(value_shape, key_shape)
        axes = AttentionAxes.of_rank(self._attention_axes, len(query_shape))
        axes.check_shapes(query_shape, value_shape)
        return axes

    def _refuse_cache(self, **arguments):
        for name, given in arguments.items():
            if given is not None:
                raise ValueError(
                    f"`{name}` is for inputs of rank 3, (batch, length, features), not for images or videos."
                )

    def _values(self, value, query):
        """Returns the projected values; the projected queries if the mechanism shares them."""
        if self._value_dense is not None:
            return self._value_dense(value)
        lengths = (query.shape[1], value.shape[1])
        check_supported(self.mechanism, {"cross": None not in lengths and lengths[0] != lengths[1]})
        return query

    def _normed(self, context):
        """Normalizes the context `(B, T, N, H)` over all heads jointly."""
        heads = (self._num_heads, self._value_dim)
        joined = ops.reshape(context, (-1, ops.shape(context)[1], heads[0] * heads[1]))
        return ops.reshape(self._context_norm(joined), (-1, ops.shape(context)[1], *heads))

    def _attend(self, query, key, value, visibility, past, return_attention_scores, training):
        """Returns the context, the scores or None, and with a cache the next cache."""
        captured = capture.is_captured(self)
        cache, cache_index = past
        result = self.mechanism(
            query,
            key,
            value,
            visibility=visibility,
            position=self.position,
            cache=cache,
            cache_index=cache_index,
            return_attention_scores=return_attention_scores or captured,
            training=training,
        )
        result, *following = (result,) if cache is None else result
        context, scores = result if return_attention_scores or captured else (result, None)
        if captured:
            capture.record(self, scores)
        return (context, scores, *following)

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns the mechanism's empty cache for `max_length` tokens."""
        measures = (self._num_key_value_heads, self._key_dim, self._value_dim)
        return self.mechanism.init_cache(batch_size, max_length, *measures, dtype or self.compute_dtype)

    def memory_cache(self, value: Tensor, key: Tensor | None = None, positions: Tensor | None = None) -> Cache:
        """Returns the projections of a whole value, for cross-attention to an encoder step by step.

        Args:
            value: float `(B, S, D_value)`.
            key: float `(B, S, D_key)`, or None for `value`.
            positions: int `(S,)` or `(B, S)`, or None for 0 .. S - 1.

        Returns:
            dict with "key" `(B, K, S, key_dim)` and "value" `(B, K, S, value_dim)`.
        """
        if self._key_dense is None or self._value_dense is None:
            raise ValueError(f"{type(self.mechanism).__name__} uses its queries as keys and has no memory_cache.")
        check_shapes(value.shape, value.shape, value.shape if key is None else key.shape)
        key, value = self._key_dense(value if key is None else key), self._value_dense(value)
        key = key if self._key_norm is None else self._key_norm(key)
        if self.position is not None:
            positions = ops.arange(ops.shape(key)[1], dtype="int32") if positions is None else positions
            _, key = self.position.rotate(key, key, positions, positions)
        return fill_dense_cache(key, value)

    def compute_output_shape(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> Shape:
        self._axes(query_shape, value_shape, value_shape if key_shape is None else key_shape)
        return (*query_shape[:-1], *(self._output_shape or (query_shape[-1],)))

    def compute_output_spec(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        *,
        cache: Cache | None = None,
        return_attention_scores: bool = False,
        **options: Any,
    ) -> Any:
        shape = (*query.shape[:-1], *(self._output_shape or (query.shape[-1],)))
        has_value = value is not None  # A cache may hold the projected value.
        if has_value:
            shape = self.compute_output_shape(query.shape, value.shape, None if key is None else key.shape)
        specs = [keras.KerasTensor(shape, dtype=self.compute_dtype)]
        if return_attention_scores:
            if cache is not None:
                shape = (query.shape[0], self._num_heads, query.shape[1], cache_length(cache))
            else:
                axes = AttentionAxes.of_rank(self._attention_axes, len(query.shape))
                shape = axes.scores_shape(query.shape, value.shape, self._num_heads)
            specs.append(keras.KerasTensor(shape, dtype=self.compute_dtype))
        if cache is not None:
            specs.append(cache_spec(cache))
        return specs[0] if len(specs) == 1 else tuple(specs)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self._num_heads,
            "key_dim": self._key_dim,
            "value_dim": self._value_dim,
            "dropout": self._dropout,
            "use_bias": self._use_bias,
            "output_shape": self._output_shape,
            "attention_axes": self._attention_axes,
            "sliding_window": self._sliding_window,
            "flash_attention": self._flash_attention,
            "kernel_initializer": keras.initializers.serialize(self._kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self._bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self._kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self._bias_regularizer),
            "activity_regularizer": keras.regularizers.serialize(self._activity_regularizer),
            "kernel_constraint": keras.constraints.serialize(self._kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self._bias_constraint),
            "use_gate": self._use_gate,
            "seed": self.seed,
            "num_key_value_heads": self._num_key_value_heads,
            "mechanism": self._mechanism_name or serialize(self.mechanism),
            "position": serialize_shared(self.position),
            "use_key_bias": self._use_key_bias,
            "use_output_bias": self._use_output_bias,
            "query_key_norm": serialize(self.query_key_norm),
            "context_norm": serialize(self.context_norm),
        }


def _slots(query, key, cache_index):
    """Returns the slots of the new queries and keys, counted from 0 or from `cache_index`."""
    if cache_index is None:
        return ops.arange(ops.shape(query)[1], dtype="int32"), ops.arange(ops.shape(key)[1], dtype="int32")
    slots = token_slots(cache_index, ops.shape(query)[1])
    return slots, slots


def _positions(positions, query_slots, key_slots):
    if positions is None:
        return query_slots, key_slots
    pair = positions if isinstance(positions, (tuple, list)) else (positions, positions)
    return tuple(slots if given is None else given for given, slots in zip(pair, (query_slots, key_slots), strict=True))
