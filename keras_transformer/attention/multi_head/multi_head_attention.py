"""Multi-head attention: projections, heads, positions and cache around an attention mechanism."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.attention import capture
from keras_transformer.attention.arguments import (
    check_key_shape,
    check_shapes,
    key_value_heads,
    output_shape_tuple,
    positive,
)
from keras_transformer.attention.cache.cached_layer import CachedLayer
from keras_transformer.attention.cache.dense import cache_length, cache_spec
from keras_transformer.attention.mechanism import Mechanism, check_supported
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.multi_head.attention_heads import AttentionHeads
from keras_transformer.attention.multi_head.axes import AttentionAxes, attention_axes_tuple
from keras_transformer.attention.multi_head.head_projections import HeadProjections
from keras_transformer.attention.multi_head.mechanism_argument import resolve_mechanism
from keras_transformer.layers.norms import NORMS
from keras_transformer.positions import ATTENTION_POSITIONS, AttentionPosition
from keras_transformer.utils.serialization import (
    build_once,
    clone,
    resolve,
    serializable,
    serialize,
    serialize_shared,
)
from keras_transformer.utils.types import (
    Cache,
    Config,
    Constraint,
    DType,
    Initializer,
    Outputs,
    Regularizer,
    Shape,
    Tensor,
)


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
        use_value_bias: bool, or None for `use_bias`. Whether the value projection has a bias.
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
        positions: int `(T,)` or `(B, T)`, or as the position object takes them: positions of queries and keys; a pair if
            queries and keys are different tokens; None for 0, 1, 2, ..., counted from `cache_index`. Used by position
            objects only: causal masks depend on the order of the tokens. For inputs of rank 3.
        cache: dict as `init_cache` returns: attention is causal. Or as `memory_cache` returns: it is not updated. For inputs
            of rank 3.
        cache_index: int32 `()` or `(B,)`: the slot of the first new token of each row; None with a `memory_cache`.
        use_causal_mask: bool. Whether a query attends only to keys up to its own index (of several attention axes, in
            row-major order).
        return_attention_scores: bool.
        prefix_length: int32 `()` or `(B,)`: with a causal mask or a cache, the number of slots from the first on whose
            tokens attend to one another; None for 0. For inputs of rank 3, and mechanisms that support any mask.
        segment_ids: int32 `(B, T)`, of packed rows: a token attends to those of its segment only, and neither to padding nor
            if it is padding, which is segment 0 and what the other masks exclude. Like `attention_mask` of `segment_mask`,
            but fused kernels that compare segments need no mask. For self-attention of rank 3 without a cache.

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
        use_value_bias: bool | None = None,
        use_output_bias: bool | None = None,
        query_key_norm: str | Config | keras.layers.Layer | None = None,
        context_norm: str | Config | keras.layers.Layer | None = None,
        **kwargs: object,
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
        self._use_gate = use_gate
        self._flash_attention = flash_attention
        self._projections = HeadProjections(
            use_bias,
            use_key_bias,
            use_value_bias,
            use_output_bias,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint,
            bias_constraint=bias_constraint,
        )
        self.seed = seed
        self.position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
        self.query_key_norm = resolve(query_key_norm, NORMS, keras.layers.Layer, argument="query_key_norm")
        self._query_norm, self._key_norm = (
            clone(self.query_key_norm, name=name, dtype=self.dtype_policy) for name in ("query_norm", "key_norm")
        )
        self.context_norm = resolve(context_norm, NORMS, keras.layers.Layer, argument="context_norm")
        self._context_norm = clone(self.context_norm, name="context_norm", dtype=self.dtype_policy)
        self._mechanism_name = mechanism if isinstance(mechanism, str) else None
        self.mechanism = resolve_mechanism(mechanism, dropout, flash_attention, seed, self.dtype_policy)

    num_heads = property(lambda self: self._num_heads)
    num_key_value_heads = property(lambda self: self._num_key_value_heads)
    key_dim = property(lambda self: self._key_dim)
    value_dim = property(lambda self: self._value_dim)
    dropout = property(lambda self: self._dropout)
    use_bias = property(lambda self: self._projections.use_bias)
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
        shapes = (query_shape, value_shape, value_shape if key_shape is None else key_shape)
        axes = self._axes(*shapes)
        query_shape, value_shape, key_shape = (axes.fold_shape(shape) for shape in shapes)
        shares_key, shares_value = self.mechanism.shares_key, self.mechanism.shares_value
        heads, key_value_heads, dtype = self._num_heads, self._num_key_value_heads, self.dtype_policy
        queries = (*query_shape[:2], heads, self._key_dim)
        keys = (*key_shape[:2], key_value_heads, self._key_dim)
        values = (*value_shape[:2], key_value_heads, self._value_dim)
        context = (*query_shape[:2], heads, self._value_dim)
        split, join = self._projections.split_heads, self._projections.join_heads
        # In the order of the weights of `keras.layers.MultiHeadAttention`.
        self._query_dense = split("query", query_shape, queries, dtype)
        self._key_dense = None if shares_key else split("key", key_shape, keys, dtype)
        self._gate_dense = split("gate", query_shape, context, dtype, "sigmoid") if self._use_gate else None
        self._value_dense = None if shares_value else split("value", value_shape, values, dtype)
        if self.query_key_norm is not None:
            self._query_norm.build(queries)
            self._key_norm.build(keys)
        build_once(self.mechanism, queries, keys, values)
        if self.position is not None:
            build_once(self.position, queries, values)
        if self.context_norm is not None:
            self._context_norm.build((*query_shape[:2], heads * self._value_dim))
        self._output_dense = join("attention_output", context, self._output_shape or (query_shape[-1],), dtype)

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
        prefix_length: Tensor | None = None,
        segment_ids: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        if prefix_length is not None or segment_ids is not None:
            check_supported(self.mechanism, {"attention_mask": True})
        is_captured = capture.is_captured(self)
        inputs = MixerInputs(
            query=query,
            value=value,
            key=key,
            query_mask=query_mask,
            value_mask=value_mask,
            key_mask=key_mask,
            attention_mask=attention_mask,
            positions=positions,
            cache=cache,
            cache_index=cache_index,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores or is_captured,
            prefix_length=prefix_length,
            segment_ids=segment_ids,
            training=training,
        )
        return self._attend(inputs, return_attention_scores, is_captured)

    def _attend(self, inputs: MixerInputs, return_attention_scores: bool, is_captured: bool) -> Outputs:
        """Returns what `call` returns; records the scores if the plots ask for them."""
        attend = self._attend_over_axes if len(inputs.query.shape) > 3 else self._heads().attend
        output, scores, cache = attend(inputs)
        if is_captured:
            capture.record(self, scores)
        further = [part for part in (scores if return_attention_scores else None, cache) if part is not None]
        return (output, *further) if further else output

    def _attend_over_axes(self, inputs):
        """Returns the output, the scores or None, and None for the cache, of inputs of rank above 3."""
        query, value, key = inputs.query, inputs.value, inputs.key
        axes = self._axes(query.shape, value.shape, value.shape if key is None else key.shape)
        output, scores, _ = self._heads().attend(axes.fold_inputs(inputs))
        return axes.unfold(output, query), None if scores is None else axes.unfold_scores(scores, query, value), None

    def _heads(self):
        """Returns the heads, which have the sublayers of this layer."""
        return AttentionHeads(
            query_dense=self._query_dense,
            key_dense=self._key_dense,
            value_dense=self._value_dense,
            gate_dense=self._gate_dense,
            output_dense=self._output_dense,
            query_norm=self._query_norm,
            key_norm=self._key_norm,
            context_norm=self._context_norm,
            mechanism=self.mechanism,
            position=self.position,
            window=self._sliding_window,
        )

    def _axes(self, query_shape, value_shape, key_shape):
        """Returns the attention axes of inputs of these shapes; raises `ValueError` for incompatible shapes."""
        check_key_shape(value_shape, key_shape)
        axes = AttentionAxes.of_rank(self._attention_axes, len(query_shape))
        axes.check_shapes(query_shape, value_shape)
        return axes

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns the mechanism's empty cache for `max_length` tokens; dtype "int8" for one of rounded keys and values."""
        if dtype == "int8" and type(self.mechanism).init_cache is not Mechanism.init_cache:
            raise ValueError(
                f"{self.path or self.name}: the cache of {type(self.mechanism).__name__} is not one of keys and values, "
                "which int8 is for."
            )
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
        check_shapes(value.shape, value.shape, value.shape if key is None else key.shape)
        return self._heads().memory(value, value if key is None else key, positions)

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape | None, key_shape: Shape | None = None
    ) -> Shape:
        if value_shape is not None:  # A cache may hold the projected value.
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
        **options: object,
    ) -> Outputs:
        shapes = [self.compute_output_shape(query.shape, *(None if x is None else x.shape for x in (value, key)))]
        if return_attention_scores and cache is not None:
            shapes.append((query.shape[0], self._num_heads, query.shape[1], cache_length(cache)))
        elif return_attention_scores:
            axes = AttentionAxes.of_rank(self._attention_axes, len(query.shape))
            shapes.append(axes.scores_shape(query.shape, value.shape, self._num_heads))
        specs = [keras.KerasTensor(shape, dtype=self.compute_dtype) for shape in shapes]
        specs += [] if cache is None else [cache_spec(cache)]
        return specs[0] if len(specs) == 1 else tuple(specs)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            **self._projections.get_config(),
            "num_heads": self._num_heads,
            "key_dim": self._key_dim,
            "value_dim": self._value_dim,
            "dropout": self._dropout,
            "output_shape": self._output_shape,
            "attention_axes": self._attention_axes,
            "sliding_window": self._sliding_window,
            "flash_attention": self._flash_attention,
            "use_gate": self._use_gate,
            "seed": self.seed,
            "num_key_value_heads": self._num_key_value_heads,
            "mechanism": self._mechanism_name or serialize(self.mechanism),
            "position": serialize_shared(self.position),
            "query_key_norm": serialize(self.query_key_norm),
            "context_norm": serialize(self.context_norm),
        }
