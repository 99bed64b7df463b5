"""The computation of multi-head attention: projected heads, positions, a mechanism, and the output projection."""

from __future__ import annotations

import dataclasses

import keras
from keras import ops

from keras_transformer.attention.cache.dense import check_key_mask, fill_dense_cache, read_dense_cache
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanism import Mechanism, check_supported
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.layers.projection import Projection
from keras_transformer.layers.split_projections import SharedInputs
from keras_transformer.positions import AttentionPosition
from keras_transformer.utils.types import Cache, Tensor


@dataclasses.dataclass(frozen=True)
class AttentionHeads:
    """The heads of a built `MultiHeadAttention`, for inputs of rank 3.

    Attributes:
        query_dense, output_dense: projections.
        key_dense, value_dense: projections, or None if the mechanism shares keys or values with queries.
        gate_dense: projection, or None.
        query_norm, key_norm: norm layers of each query and each key head, or None.
        context_norm: norm layer of the contexts of all heads, or None.
        mechanism: the `Mechanism`.
        position: an `AttentionPosition`, or None.
        window: int, or None. See `Visibility`.
    """

    query_dense: Projection
    key_dense: Projection | None
    value_dense: Projection | None
    gate_dense: Projection | None
    output_dense: Projection
    query_norm: keras.layers.Layer
    key_norm: keras.layers.Layer
    context_norm: keras.layers.Layer
    mechanism: Mechanism
    position: AttentionPosition | None
    window: int | None

    def attend(self, inputs: MixerInputs) -> tuple[Tensor, Tensor | None, Cache | None]:
        """Returns the output `(B, T, D)`, the scores `(B, N, T, S)` if requested, and with a cache the next cache."""
        project = SharedInputs()
        gate = None if self.gate_dense is None else project(self.gate_dense, inputs.query)
        query, key, value = self._project(inputs, project)
        visibility = inputs.visibility_of_keys(ops.shape(key)[1], self.window)
        visibility = visibility if self.mechanism.takes_segments else visibility.with_segments_as_mask()
        if inputs.reads_memory:
            check_key_mask(inputs.cache, visibility.key_mask)
        if self.position is not None and not self.mechanism.applies_rotation:
            positions = (visibility.query_positions, visibility.key_positions)
            query, *rotated = self.position.rotate_all(query, key, value, *positions, training=inputs.training)
            key, value = (key, value) if inputs.reads_memory else rotated  # A memory is rotated already.
        context, scores, cache = self._call_mechanism(query, key, value, visibility, inputs)
        context = context if self.context_norm is None else self._normalize(context)
        return self.output_dense(context if gate is None else context * gate), scores, cache

    def memory(self, value: Tensor, key: Tensor, positions: Tensor | None = None) -> Cache:
        """Returns the cache of `MultiHeadAttention.memory_cache`."""
        if self.key_dense is None or self.value_dense is None:
            raise ValueError(f"{type(self.mechanism).__name__} uses its queries as keys and has no memory_cache.")
        key, value = self.key_dense(key), self.value_dense(value)
        key = key if self.key_norm is None else self.key_norm(key)
        if self.position is not None:
            positions = ops.arange(ops.shape(key)[1], dtype="int32") if positions is None else positions
            _, key, value = self.position.rotate_all(key, key, value, positions, positions)
        return fill_dense_cache(key, value)

    def _project(self, inputs, project: SharedInputs):
        """Returns queries `(B, T, N, H)`, and keys and values `(B, S, K, H)`, before rotation or from a memory."""
        query = project(self.query_dense, inputs.query)
        if inputs.reads_memory:
            key, value = read_dense_cache(inputs.cache, query.dtype)
        else:
            tokens = inputs.value if inputs.key is None else inputs.key
            key = query if self.key_dense is None else project(self.key_dense, tokens)
            key = key if self.key_norm is None else self.key_norm(key)
            value = self._values(inputs.value, query, project)
        return query if self.query_norm is None else self.query_norm(query), key, value

    def _values(self, value, query, project: SharedInputs):
        """Returns the projected values; the projected queries if the mechanism shares them."""
        if self.value_dense is not None:
            return project(self.value_dense, value)
        lengths = (query.shape[1], value.shape[1])
        check_supported(self.mechanism, {"cross": None not in lengths and lengths[0] != lengths[1]})
        return query

    def _call_mechanism(self, query, key, value, visibility: Visibility, inputs: MixerInputs):
        """Returns the context, the scores or None, and the next cache or None."""
        result = self.mechanism(
            query,
            key,
            value,
            visibility=visibility,
            position=None if self.position is None else self.position.given(inputs.query),
            cache=inputs.cache if inputs.extends_cache else None,
            cache_index=inputs.cache_index if inputs.extends_cache else None,
            return_attention_scores=inputs.return_attention_scores,
            training=inputs.training,
        )
        result, cache = result if inputs.extends_cache else (result, inputs.cache)
        context, scores = result if inputs.return_attention_scores else (result, None)
        return context, scores, cache

    def _normalize(self, context):
        """Normalizes the context `(B, T, N, H)` over all heads jointly."""
        length, heads = ops.shape(context)[1], context.shape[2:]
        joined = ops.reshape(context, (-1, length, heads[0] * heads[1]))
        return ops.reshape(self.context_norm(joined), (-1, length, *heads))
