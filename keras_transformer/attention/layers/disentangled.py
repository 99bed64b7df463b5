"""Disentangled attention of DeBERTa."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformer.attention import capture
from keras_transformer.attention.arguments import check_shapes, positive
from keras_transformer.attention.cache.dense import (
    cache_length,
    check_key_mask,
    init_dense_cache,
    read_dense_cache,
    update_dense_cache,
)
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanism import ALL_CAPABILITIES
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.scoring.scaled_dot import ScaledDot
from keras_transformer.attention.token_mixer import TokenMixer
from keras_transformer.backend.kernels.shared_matmul import shared_matmul
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.projection import join_heads, split_heads
from keras_transformer.positions import RelativeEmbedding
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize_shared
from keras_transformer.utils.types import Cache, Config, Initializer, LayerOptions, Outputs, Shape, Tensor

TERMS = ("c2p", "p2c")


@serializable
class DisentangledAttention(TokenMixer):
    """Disentangled attention of DeBERTa: separate vectors for the contents of tokens and for their distances.

    With the row r(i, j) of the pair in a table P of relative vectors, see `positions.RelativeEmbedding`,

        score_ij = (q_i · k_j + q_i · W_kr P_r(i,j) + k_j · W_qr P_r(i,j)) / √(H · number of terms)

    The terms are content to content, content to position ("c2p") and position to content ("p2c"). There is no vector for a
    pair: products with the vectors are computed once per row of P, `(T, 2k)` and `(S, 2k)`, and gathered for the pairs; only
    rows that the length reaches are computed. Time and memory grow with T · S.

    Args:
        num_heads: int >= 1. N.
        key_dim: int >= 1. Width H of each head, of queries, keys and values.
        relative_embedding: `RelativeEmbedding`, or its config. Layers with the same instance share it. None for one of 256
            buckets up to a distance of 512.
        terms: list of "c2p" and "p2c", or of one of them. Defaults to both.
        share_projections: bool. Whether `W_qr` and `W_kr` are the projections of queries and keys. Defaults to False.
        dropout: float in [0, 1). Dropout rate of the attention weights.
        position_dropout: float in [0, 1). Dropout rate of the relative vectors.
        use_bias: bool. Whether the projections have biases. Defaults to True.
        kernel_initializer: initializer of the projections.
        seed: int or None. Seed of the dropout.

    Call arguments: those of `MultiHeadAttention`. `positions` determine the distances.

    Returns:
        As `MultiHeadAttention`: `(B, T, D)`, and scores `(B, N, T, S)` or the next cache as requested.

    Raises:
        ValueError: `num_heads` or `key_dim` below 1; no term, or an unknown one; queries and values of different widths with
            shared projections.

    Masks: as in `MultiHeadAttention`. A query whose keys are all masked has a zero context.
    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.positions import RelativeEmbedding
    >>> layer = DisentangledAttention(2, 4, RelativeEmbedding(max_distance=8))
    >>> x = np.ones((1, 20, 8), "float32")
    >>> tuple(layer(x, x).shape)
    (1, 20, 8)

    Reference: He et al., DeBERTa, arXiv 2006.03654, section 3.1, equation 4; shared projections: He et al., DeBERTaV3, arXiv
    2111.09543, and the published code of version 2. The row of a p2c term is that of the c2p term, as in that code; the
    paper takes the opposite distance.
    """

    supports = ALL_CAPABILITIES - {"window", "bias", "query", "values"}
    cache_is_rewindable = True
    reads_values = True
    records_attention_scores = True

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        relative_embedding: RelativeEmbedding | Config | None = None,
        terms: Sequence[str] = TERMS,
        share_projections: bool = False,
        dropout: float = 0.0,
        position_dropout: float = 0.0,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.key_dim = positive("key_dim", key_dim)
        if relative_embedding is None:
            relative_embedding = RelativeEmbedding(512, num_buckets=256, name="relative_embedding")
        self.relative_embedding = resolve(relative_embedding, {}, RelativeEmbedding, argument="relative_embedding")
        self.terms = [term for term in TERMS if term in terms]
        if isinstance(terms, str) or not terms or set(terms) - set(TERMS):
            raise ValueError(
                f"terms must be a list of {' and '.join(map(repr, TERMS))}, or of one. Received: {terms!r}"
            )
        self.share_projections = share_projections
        self.dropout = dropout
        self.position_dropout = position_dropout
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self._scale = 1.0 / math.sqrt(key_dim * (1 + len(self.terms)))
        scoring = ScaledDot(self._scale, dtype=self.dtype_policy)
        self.softmax = SoftmaxAttention(scoring, dropout, seed=seed, dtype=self.dtype_policy)
        self._position_dropout = Dropout(position_dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        value_shape = query_shape if value_shape is None else value_shape
        key_shape = value_shape if key_shape is None else key_shape
        check_shapes(query_shape, value_shape, key_shape)
        if self.share_projections and query_shape[-1] != key_shape[-1]:
            raise ValueError(
                "share_projections=True needs queries and keys of one width, which is that of the relative vectors. "
                f"Received: {query_shape[-1]} and {key_shape[-1]}"
            )
        build_once(self.relative_embedding, query_shape)
        shapes = {"query": query_shape, "key": key_shape, "value": value_shape}
        if not self.share_projections:
            own = {"c2p": "position_key", "p2c": "position_query"}
            shapes |= {own[term]: query_shape for term in self.terms}
        for name, shape in shapes.items():
            dense = split_heads(self, name, self.num_heads, self.key_dim)
            dense.build(shape)
            setattr(self, f"_{name}_dense", dense)
        heads = (*query_shape[:2], self.num_heads, self.key_dim)
        build_once(self.softmax, heads, heads, heads)
        self._output_dense = join_heads(self, "attention_output", query_shape[-1])
        self._output_dense.build(heads)

    output_dense = property(lambda self: self._output_dense)

    def mix(self, inputs: MixerInputs) -> Outputs:
        key, value = self._keys_and_values(inputs)
        return self._attend(inputs, key, value, inputs.visibility_of_keys(ops.shape(key)[1]))

    def init_cache(self, batch_size: int, max_length: int, dtype: str | None = None) -> Cache:
        """Returns an empty cache of keys and values for `max_length` tokens."""
        measures = (self.num_heads, self.key_dim, self.key_dim)
        return init_dense_cache(batch_size, max_length, *measures, dtype or self.compute_dtype)

    def extend(self, inputs: MixerInputs) -> Outputs:
        key, value = self._keys_and_values(inputs)
        visibility = inputs.visibility_of_keys(ops.shape(key)[1])
        check_key_mask(inputs.cache, visibility.key_mask)
        cache = update_dense_cache(inputs.cache, key, value, inputs.cache_index)
        key, value = read_dense_cache(cache, key.dtype)
        slots = ops.arange(ops.shape(key)[1], dtype="int32")
        visibility = dataclasses.replace(visibility, key_slots=slots, key_positions=slots)
        result = self._attend(inputs, key, value, visibility)
        return (*result, cache) if isinstance(result, tuple) else (result, cache)

    def _keys_and_values(self, inputs):
        """Returns the projected keys and values, `(B, S, N, H)`."""
        value = inputs.query if inputs.value is None else inputs.value
        return self._key_dense(value if inputs.key is None else inputs.key), self._value_dense(value)

    def _attend(self, inputs: MixerInputs, key, value, visibility: Visibility):
        """Returns the output, or `(output, scores)` if requested."""
        is_captured = capture.is_captured(self)
        terms: Any = self._position_terms(key, _length(inputs), inputs.training)
        returns_scores = inputs.return_attention_scores or is_captured
        result = self.softmax.attend(
            self._query_dense(inputs.query), key, value, visibility, terms, returns_scores, inputs.training
        )
        context, scores = result if isinstance(result, tuple) else (result, None)
        if is_captured:
            capture.record(self, scores)
        output = self._output_dense(context)
        return (output, scores) if inputs.return_attention_scores else output

    def _position_terms(self, key, length, training):
        """Returns the c2p and p2c terms for these keys."""
        vectors, first = self.relative_embedding.vectors(length)
        vectors = self._position_dropout(vectors, training=training)
        prefix = "" if self.share_projections else "position_"
        names = {"c2p": f"_{prefix}key_dense", "p2c": f"_{prefix}query_dense"}
        found = {term: getattr(self, names[term])(vectors)[0] * self._scale for term in self.terms}
        return _PositionTerms(self.relative_embedding, key, first, found.get("c2p"), found.get("p2c"))

    def compute_output_spec(
        self,
        query: Tensor,
        value: Tensor | None = None,
        key: Tensor | None = None,
        *,
        cache: Cache | None = None,
        return_attention_scores: bool = False,
        **options: Any,
    ) -> Outputs:
        found = super().compute_output_spec(query, value, key, cache=cache, **options)
        if not return_attention_scores:
            return found
        output, *following = found if isinstance(found, tuple) else (found,)
        length = (query if value is None else value).shape[1] if cache is None else cache_length(cache)
        shape = (query.shape[0], self.num_heads, query.shape[1], length)
        return (output, keras.KerasTensor(shape, dtype=self.compute_dtype), *following)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "relative_embedding": serialize_shared(self.relative_embedding),
            "terms": self.terms,
            "share_projections": self.share_projections,
            "dropout": self.dropout,
            "position_dropout": self.position_dropout,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }


@dataclasses.dataclass(frozen=True)
class _PositionTerms:
    """The terms of positions as a bias: the part of `AttentionPosition` that `SoftmaxAttention` reads.

    Attributes:
        embedding: `RelativeEmbedding`.
        key: float `(B, S, N, H)`.
        first: int or int32 scalar. The row of the first vector.
        position_keys, position_queries: the projected and scaled vectors, `(R, N, H)`, or None without the term.
    """

    embedding: RelativeEmbedding
    key: Tensor
    first: Tensor
    position_keys: Tensor | None
    position_queries: Tensor | None
    needs = frozenset({"bias", "query"})

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Returns the sum of the terms, float32 `(B, N, T, S)`."""
        rows = self.embedding.rows(query_positions, key_positions) - self.first
        terms = []
        if self.position_keys is not None:
            terms.append(_gathered(query, self.position_keys, rows, axis=2))
        if self.position_queries is not None:
            terms.append(_gathered(self.key, self.position_queries, rows, axis=1))
        bias = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        return ops.cast(ops.transpose(bias, (0, 3, 1, 2)), "float32")


def _length(inputs: MixerInputs):
    """Returns the number that all positions are below; None if it is not known."""
    if inputs.positions is not None or inputs.cache is not None:
        return None
    lengths = [ops.shape(x)[1] for x in (inputs.query, inputs.value) if x is not None]
    return max(lengths) if all(isinstance(length, int) for length in lengths) else ops.max(ops.stack(lengths))


def _gathered(x, vectors, rows, axis):
    """Returns the product of tokens and vectors for each pair, `(B, T, S, N)`.

    The heads of a pair are adjacent, so that one index serves them all.

    Args:
        x: the queries or keys, `(B, L, N, H)`.
        vectors: `(R, N, H)`.
        rows: the row of each pair, int32 `(1 | B, T, S)`.
        axis: int. The axis to insert for the other side of a pair: 2 for queries, 1 for keys.
    """
    batch, length = ops.shape(x)[0], ops.shape(x)[1]
    count, heads = ops.shape(vectors)[0], vectors.shape[1]
    products = shared_matmul(ops.transpose(x, (0, 2, 1, 3)), ops.transpose(vectors, (1, 2, 0)))  # (B, N, L, R)
    products = ops.reshape(ops.transpose(products, (0, 2, 3, 1)), (-1, heads))
    starts = ops.reshape(ops.arange(batch * length, dtype="int32") * count, (-1, length))
    return ops.take(products, ops.expand_dims(starts, axis) + rows, axis=0)
