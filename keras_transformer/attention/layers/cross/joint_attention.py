"""Joint attention of two sequences with projections of their own."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.masks import Visibility
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
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Outputs, PositionLike, Shape, Tensor


@serializable
class JointAttention(keras.layers.Layer):
    """Joint attention: the tokens of two sequences attend to all tokens of both, with projections of each sequence.

    `softmax([Q; Q'] [K; K']ᵀ / √H) [V; V']`, where Q, K and V are projected from the inputs, and Q', K' and V' from the
    context.

    Args:
        num_heads: int >= 1. Heads N.
        key_dim: int >= 1. Width H of the heads.
        query_key_norm: a name in `NORMS`, or a layer to copy: norm of the queries and keys of each head. Default None.
        context_output: bool. Whether the context has an output, and queries. Default True.
        mechanism: a name in `MECHANISMS` of one with two-sided attention, an instance or its config. Default "softmax".
        position: a name in `positions.ATTENTION_POSITIONS`, an instance, or None. Its positions are 0, 1, 2, ... in the
            inputs and -1 in the context, which `GridRotary` does not rotate. Default None.

    Call arguments:
        inputs: float `(B, T, D)`.
        context: float `(B, S, C)`.
        context_mask: boolean `(B, S)`, True = a real token; or None.

    Returns:
        `(B, T, D)` and `(B, S, C)`; without `context_output` the first alone.

    Raises:
        ValueError: an unknown mechanism, norm or position; a position that does not only rotate.

    Example:

    >>> import numpy as np
    >>> layer = JointAttention(num_heads=2, key_dim=4)
    >>> outputs = layer(np.ones((1, 5, 8)), np.ones((1, 3, 6)))
    >>> [tuple(output.shape) for output in outputs]
    [(1, 5, 8), (1, 3, 6)]

    Reference: Esser et al., Scaling Rectified Flow Transformers, arXiv 2403.03206, section 4 and figure 2; norms of queries
    and keys, section 5.3.2.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        query_key_norm: LayerLike | None = None,
        context_output: bool = True,
        mechanism: LayerLike = "softmax",
        position: PositionLike = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.context_output = context_output
        self.query_key_norm = resolve(query_key_norm, NORMS, keras.layers.Layer, argument="query_key_norm")
        self.mechanism = resolve_mechanism(mechanism, 0.0, None, None, self.dtype_policy)
        self.position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
        if self.position is not None and self.position.needs:
            raise ValueError(
                f"JointAttention takes positions that rotate queries and keys. Received: {self.position.__class__.__name__}"
            )
        self._projections = HeadProjections(True, kernel_initializer="glorot_uniform", bias_initializer="zeros")
        self._norms = {
            f"{prefix}{name}": clone(self.query_key_norm, name=f"{prefix}{name}_norm", dtype=self.dtype_policy)
            for prefix, name in self._names()
            if name != "value"
        }

    def _names(self):
        """The projections of both sequences: `(prefix, name)`."""
        pairs = [(prefix, name) for prefix in ("", "context_") for name in ("query", "key", "value")]
        return [pair for pair in pairs if self.context_output or pair != ("context_", "query")]

    def build(self, inputs_shape: Shape, context_shape: Shape) -> None:
        self._dense = {}
        heads = (inputs_shape[0], None, self.num_heads, self.key_dim)
        for prefix, part in self._names():
            name, shape = f"{prefix}{part}", context_shape if prefix else inputs_shape
            self._dense[name] = self._projections.split_heads(name, shape, heads, self.dtype_policy)
            if self._norms.get(name) is not None:
                self._norms[name].build(heads)
            if part == "query":
                name = f"{prefix}attention_output"
                self._dense[name] = self._projections.join_heads(name, heads, (shape[-1],), self.dtype_policy)
        build_once(self.mechanism, heads, heads, heads)
        if self.position is not None:
            build_once(self.position, heads, heads)

    def call(
        self, inputs: Tensor, context: Tensor, context_mask: Tensor | None = None, training: bool | None = None
    ) -> Outputs:
        parts: dict[str, list[Tensor]] = {"query": [], "key": [], "value": []}
        for prefix, name in self._names():
            parts[name].append(self._project(f"{prefix}{name}", context if prefix else inputs))
        query, key, value = (ops.concatenate(each, axis=1) if len(each) > 1 else each[0] for each in parts.values())
        slots = [ops.arange(ops.shape(each)[1], dtype="int32") for each in (query, key)]
        length = ops.shape(inputs)[1]
        if self.position is not None:
            query, key = self.position.rotate(query, key, *(ops.where(each < length, each, -1) for each in slots))
        mask = None
        if context_mask is not None:
            own = ops.ones_like(inputs[:, :, 0], dtype="bool")
            mask = ops.concatenate([own, ops.cast(context_mask, "bool")], axis=1)
        visibility = Visibility.from_slots(*slots, key_mask=mask)
        attended = self.mechanism(query, key, value, visibility=visibility, training=training)
        if not self.context_output:
            return self._dense["attention_output"](attended)
        output = self._dense["attention_output"](attended[:, :length])
        return output, self._dense["context_attention_output"](attended[:, length:])

    def _project(self, name, tokens):
        projected, norm = self._dense[name](tokens), self._norms.get(name)
        return projected if norm is None else norm(projected)

    def compute_output_shape(self, inputs_shape: Shape, context_shape: Shape) -> Shape | tuple[Shape, Shape]:
        return (inputs_shape, context_shape) if self.context_output else inputs_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "query_key_norm": serialize(self.query_key_norm),
            "context_output": self.context_output,
            "mechanism": serialize(self.mechanism),
            "position": serialize_shared(self.position),
        }
