"""Multi-head latent attention (MLA) of DeepSeek-V2."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import positive
from keras_transformer.attention.cache.dense import check_key_mask, write_rows
from keras_transformer.attention.layers.absorbed_projections import (
    can_be_absorbed,
    kernel_by_head,
    project_each_head,
)
from keras_transformer.attention.mechanism import Mechanism
from keras_transformer.attention.mechanisms.blockwise import BlockwiseAttention
from keras_transformer.attention.mechanisms.softmax import SoftmaxAttention
from keras_transformer.attention.mixer import MixerInputs
from keras_transformer.attention.scoring.scaled_dot import ScaledDot
from keras_transformer.attention.token_mixer import TokenMixer
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.layers.projection import join_heads, split_heads, token_projection
from keras_transformer.positions import ATTENTION_POSITIONS, AttentionPosition
from keras_transformer.utils.serialization import build_once, resolve, serializable, serialize
from keras_transformer.utils.types import Cache, Config, DType, Initializer, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.attention.masks import Visibility

_MECHANISMS: dict[str, type[Mechanism]] = {"softmax": SoftmaxAttention, "blockwise": BlockwiseAttention}
# That of the norms of both latents.
_EPSILON = 1e-6


@serializable
class MultiHeadLatentAttention(TokenMixer):
    """Multi-head latent attention: keys and values of all heads are projected from one small latent of each token.

    `c = norm(x W_down)` is the latent, and `r = rotate(x W_rotary)` a rotary key that all heads share. Head n has the keys
    `[c W_key^n ; r]` and the values `c W_value^n`. The queries are `[q ; rotate(q')]`, projected from the tokens, or
    from a latent of their own. The cache keeps `[c ; r]`, `latent_dim + rotary_dim` numbers of each token for all heads.
    Memory and time grow with T · S; with "blockwise", memory with `T + S`.

    There are two forms, which compute the same. The expanded form computes keys and values of each head. The absorbed form
    moves the up-projections to the other side, `q · (c W_key^n) = (q W_key^nᵀ) · c` and `Σ w (c W_value^n) = (Σ w c)
    W_value^n`: then all heads attend to the latents themselves, as in multi-query attention. Without a cache and for many
    new tokens the expanded form takes less time. A statically known number of new tokens up to `max_absorbed_queries`, such
    as the one of a decoding step, takes the absorbed form, which computes no keys and values of past tokens.

    Args:
        num_heads: int >= 1. N.
        latent_dim: int >= 1. Width of the latent of keys and values.
        key_dim: int >= 1. Width of the part of each query and key head without positions.
        rotary_dim: int >= 1. Width of the part with positions; even for rotary positions.
        value_dim: int >= 1, or None for `key_dim`. Width of each value head.
        query_latent_dim: int >= 1, or None for queries that are projected from the tokens directly.
        scale: float, or None for `1 / √(key_dim + rotary_dim)`. Factor of the scores.
        mechanism: "softmax"; "blockwise", whose memory is linear in the length; or an instance of either, with its own
            dropout, and without a scale of its own.
        position: a name in `positions.ATTENTION_POSITIONS`, an instance, or None. It must not have biases.
        use_bias: bool. Whether the projections to the latents and the output projection have biases. Defaults to False.
        kernel_initializer: initializer of the projections.

    Call arguments: see `TokenMixer`. An `attention_mask` `(T, S)`, `(B, T, S)` or `(B, N, T, S)` is supported.

    Returns:
        `(B, T, D)`; with a cache, `(output, next_cache)`. The cache is "latent" `(B, 1, L, latent_dim + rotary_dim)`.

    Raises:
        ValueError: a size below 1; a mechanism with a scale or scoring of its own; a position with biases; scores or
            cross-attention; a full cache.

    Export: all three formats, with and without a cache.

    Example:

    >>> import numpy as np
    >>> layer = MultiHeadLatentAttention(num_heads=4, latent_dim=6, key_dim=8, rotary_dim=2)
    >>> x = np.ones((1, 5, 16), "float32")
    >>> output, cache = layer(x, x, cache=layer.init_cache(batch_size=1, max_length=9), cache_index=0)
    >>> tuple(output.shape), {name: tuple(tensor.shape) for name, tensor in cache.items()}
    ((1, 5, 16), {'latent': (1, 1, 9, 8)})

    Reference: DeepSeek-AI, DeepSeek-V2, arXiv 2405.04434, section 2.1 and appendix C; DeepSeek-V3, arXiv 2412.19437, section
    2.1.1. Norms of the latents are in their code, not in the equations. Rotary pairs are adjacent features by default.
    """

    supports = frozenset({"causal", "bidirectional", "cache", "attention_mask"})
    cache_is_rewindable = True

    def __init__(
        self,
        num_heads: int,
        latent_dim: int,
        key_dim: int,
        rotary_dim: int,
        value_dim: int | None = None,
        query_latent_dim: int | None = None,
        scale: float | None = None,
        mechanism: str | Config | Mechanism = "softmax",
        position: str | Config | AttentionPosition | None = "rotary",
        use_bias: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = positive("num_heads", num_heads)
        self.latent_dim = positive("latent_dim", latent_dim)
        self.key_dim = positive("key_dim", key_dim)
        self.rotary_dim = positive("rotary_dim", rotary_dim)
        self.value_dim = key_dim if value_dim is None else positive("value_dim", value_dim)
        self.query_latent_dim = None if query_latent_dim is None else positive("query_latent_dim", query_latent_dim)
        self.scale = scale
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
        if self.position is not None and self.position.needs:
            raise ValueError(f"position must only rotate queries and keys. Received: {type(self.position).__name__}")
        options = {"dtype": self.dtype_policy, "name": "mechanism"}
        self.mechanism = resolve(mechanism, _MECHANISMS, Mechanism, argument="mechanism", **options)
        _check_mechanism(self.mechanism)

    @property
    def max_absorbed_queries(self) -> int:
        """int >= 1: the number of new tokens up to which the absorbed form takes fewer operations than the expanded form."""
        expanded = self.key_dim + self.value_dim
        saved = 2 * self.latent_dim + self.rotary_dim - expanded
        # The absorbed form costs `saved` more for each pair of tokens, the expansion `latent_dim * expanded` a cached token.
        return max(1, self.latent_dim * expanded // saved) if saved > 0 else 2**31 - 1

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        tokens, heads = tuple(query_shape[:2]), self.num_heads
        width = self.key_dim + self.rotary_dim
        if self.query_latent_dim is None:
            self.query_dense = self._built(split_heads(self, "query", heads, width, use_bias=False), query_shape)
        else:
            latent = (*tokens, self.query_latent_dim)
            self.query_down = self._built(token_projection(self, "query_down", latent[-1], self.use_bias), query_shape)
            self.query_norm = self._built(self._norm("query_norm"), latent)
            self.query_dense = self._built(split_heads(self, "query_up", heads, width, use_bias=False), latent)
        row, latent = self.latent_dim + self.rotary_dim, (*tokens, self.latent_dim)
        self.latent_dense = self._built(token_projection(self, "latent", row, self.use_bias), query_shape)
        self.latent_norm = self._built(self._norm("latent_norm"), latent)
        self.key_dense = self._built(split_heads(self, "key_up", heads, self.key_dim, use_bias=False), latent)
        self.value_dense = self._built(split_heads(self, "value_up", heads, self.value_dim, use_bias=False), latent)
        self.output_dense = join_heads(self, "attention_output", query_shape[-1])
        self.output_dense.build((*tokens, heads, self.value_dim))
        if self.position is not None:
            rotated = (*tokens, heads, self.rotary_dim)
            build_once(self.position, rotated, rotated)
        build_once(self.mechanism, (*tokens, heads, width), (*tokens, heads, width), (*tokens, heads, self.value_dim))

    def _built(self, layer: keras.layers.Layer, shape: Shape) -> keras.layers.Layer:
        layer.build(shape)
        return layer

    def _norm(self, name: str) -> keras.layers.Layer:
        return RMSNormalization(epsilon=_EPSILON, name=name, dtype=self.dtype_policy)

    def mix(self, inputs: MixerInputs) -> Tensor:
        query, rows = self._project(inputs)
        return self._attend(inputs, query, rows, inputs.visibility_of_keys(ops.shape(rows)[1]))

    def extend(self, inputs: MixerInputs) -> tuple[Tensor, Cache]:
        query, rows = self._project(inputs)
        check_key_mask(inputs.cache, inputs.key_mask)
        cache = write_rows(inputs.cache, {"latent": ops.expand_dims(rows, 2)}, inputs.cache_index)
        rows = ops.cast(ops.squeeze(cache["latent"], 1), rows.dtype)
        slots = ops.arange(ops.shape(rows)[1], dtype="int32")
        visibility = dataclasses.replace(
            inputs.visibility_of_keys(ops.shape(rows)[1]), key_slots=slots, key_positions=slots
        )
        return self._attend(inputs, query, rows, visibility), cache

    def _project(self, inputs: MixerInputs) -> tuple[Tensor, Tensor]:
        """Returns queries `(B, T, N, key_dim + rotary_dim)` and rows of the cache `(B, T, latent_dim + rotary_dim)`."""
        x = inputs.query
        query = self.query_dense(x if self.query_latent_dim is None else self.query_norm(self.query_down(x)))
        rows = self.latent_dense(x)
        latent, key = self.latent_norm(rows[..., : self.latent_dim]), rows[..., self.latent_dim :]
        if self.position is not None:
            positions = inputs.visibility.query_positions
            key, turning = ops.expand_dims(key, 2), query[..., self.key_dim :]
            turned, key = self.position.rotate(turning, key, positions, positions)
            query, key = ops.concatenate([query[..., : self.key_dim], turned], axis=-1), ops.squeeze(key, 2)
        return query, ops.concatenate([latent, key], axis=-1)

    def _attend(self, inputs: MixerInputs, query: Tensor, rows: Tensor, visibility: Visibility) -> Tensor:
        """Returns the output for queries and the rows of all tokens, `(B, S, latent_dim + rotary_dim)`."""
        scale = 1.0 / math.sqrt(self.key_dim + self.rotary_dim) if self.scale is None else self.scale
        length = query.shape[1]
        absorbs = inputs.cache is not None and length is not None and length <= self.max_absorbed_queries
        absorbs = absorbs and can_be_absorbed(self.key_dense) and can_be_absorbed(self.value_dense)
        attend = self._attend_absorbed if absorbs else self._attend_expanded
        context = attend(query, rows, scale, {"visibility": visibility, "training": inputs.training})
        return self.output_dense(context)

    def _attend_expanded(self, query: Tensor, rows: Tensor, scale: float, options: Mapping[str, object]) -> Tensor:
        latent = rows[..., : self.latent_dim]
        key, value = self.key_dense(latent), self.value_dense(latent)
        shared = ops.expand_dims(rows[..., self.latent_dim :], 2)
        shared = ops.broadcast_to(shared, (*ops.shape(key)[:3], self.rotary_dim))
        key = ops.concatenate([key, shared], axis=-1)
        return self.mechanism(_scaled(query, scale), key, value, **options)

    def _attend_absorbed(self, query: Tensor, rows: Tensor, scale: float, options: Mapping[str, object]) -> Tensor:
        """The absorbed form: multi-query attention whose key and value are the rows of the cache."""
        kernel = ops.transpose(kernel_by_head(self.key_dense, query.dtype), (0, 2, 1))
        absorbed = project_each_head(query[..., : self.key_dim], kernel)
        query = ops.concatenate([absorbed, query[..., self.key_dim :]], axis=-1)
        rows = ops.expand_dims(rows, 2)
        # The rotary part of the context is not used. A copy of the latents without it would take longer.
        context = self.mechanism(_scaled(query, scale), rows, rows, **options)
        return project_each_head(context[..., : self.latent_dim], kernel_by_head(self.value_dense, query.dtype))

    def init_cache(self, batch_size: int, max_length: int, dtype: DType = None) -> Cache:
        """Returns an empty cache for `max_length` tokens."""
        shape = (batch_size, 1, max_length, self.latent_dim + self.rotary_dim)
        if dtype == "int8":
            raise ValueError(
                f"{self.path or self.name}: the cache of latents is not one of keys and values, which int8 is for."
            )
        return {"latent": ops.zeros(shape, dtype=dtype or self.compute_dtype)}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "latent_dim": self.latent_dim,
            "key_dim": self.key_dim,
            "rotary_dim": self.rotary_dim,
            "value_dim": self.value_dim,
            "query_latent_dim": self.query_latent_dim,
            "scale": self.scale,
            "mechanism": serialize(self.mechanism),
            "position": serialize(self.position),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def _check_mechanism(mechanism: Mechanism) -> None:
    """Raises `ValueError` for a mechanism other than scaled dot-product attention of the default scale."""
    softmax = getattr(mechanism, "softmax", mechanism)
    scoring = getattr(softmax, "scoring", None)
    if not (isinstance(mechanism, (SoftmaxAttention, BlockwiseAttention)) and isinstance(scoring, ScaledDot)):
        raise ValueError(
            "mechanism must be one of ['blockwise', 'softmax'], or a SoftmaxAttention of 'scaled_dot' scores or a "
            f"BlockwiseAttention. Received: {mechanism!r}"
        )
    if scoring.scale is not None:
        raise ValueError(f"Set scale on MultiHeadLatentAttention, not on the mechanism. Received: {scoring.scale}")


def _scaled(query: Tensor, scale: float) -> Tensor:
    """Returns the query `(B, T, N, H)` times `scale √H`: a mechanism divides by `√H`, which differs between the forms."""
    return query * ops.cast(scale * math.sqrt(query.shape[-1]), query.dtype)
