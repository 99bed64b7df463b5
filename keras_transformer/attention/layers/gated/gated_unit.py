"""Base class of gated attention: one shared narrow vector for queries and keys, wide values, and a gate."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.attention.arguments import check_shapes, positive
from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.token_mixer import TokenMixer
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.projection import token_projection
from keras_transformer.positions import ATTENTION_POSITIONS, AttentionPosition
from keras_transformer.utils.serialization import build_once, resolve, serialize
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor


class GatedUnit(TokenMixer):
    """Base class of gated attention: `y = (u ⊙ context) W_o`, with `u, v = silu(x W)`, `z = silu(x W_z)`.

    Queries and keys are affine transforms of the shared vector z: `z ⊙ γ + β`, with own γ and β for each. A subclass lists
    them in `uses`.
    """

    uses: tuple[str, ...] = ()

    def __init__(
        self,
        intermediate_dim: int | None,
        key_dim: int,
        position: str | Config | AttentionPosition | None,
        dropout: float,
        kernel_initializer: Initializer,
        seed: int | None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = None if intermediate_dim is None else positive("intermediate_dim", intermediate_dim)
        self.key_dim = positive("key_dim", key_dim)
        self.position = resolve(position, ATTENTION_POSITIONS, AttentionPosition, argument="position")
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self._dropout_layer = Dropout(dropout, seed=seed, dtype="float32")

    output_dense = property(lambda self: self._output_dense)

    def build(self, query_shape: Shape, value_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        value_shape = query_shape if value_shape is None else value_shape
        check_shapes(query_shape, value_shape, value_shape)
        self._width = self.intermediate_dim or 2 * query_shape[-1]
        self._hidden_dense = self._project("hidden", 2 * self._width, query_shape, activation="silu")
        self._shared_dense = self._project("shared", self.key_dim, query_shape, activation="silu")
        shape = (len(self.uses), self.key_dim)
        # Near 1: the authors start near 0, where squared products without a bias have almost no gradient.
        near_one = keras.initializers.RandomNormal(mean=1.0, stddev=0.02)
        self._scale = self.add_weight(name="scale", shape=shape, initializer=near_one)
        self._shift = self.add_weight(name="shift", shape=shape, initializer="zeros")
        if self.position is not None:
            heads = (*query_shape[:2], 1)
            build_once(self.position, (*heads, self.key_dim), (*heads, self._width))
        inner = (*query_shape[:2], self._width)
        self._output_dense = self._project("attention_output", query_shape[-1], inner)

    def _project(self, name, width, input_shape, activation=None):
        dense = token_projection(self, name, width, activation=activation)
        dense.build(input_shape)
        return dense

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Returns values and gate, `(B, T, E)`, and the vector of each use, `(B, T, 1, key_dim)`."""
        hidden, shared = self._hidden_dense(x), self._shared_dense(x)
        scale, shift = (ops.cast(ops.convert_to_tensor(w), shared.dtype) for w in (self._scale, self._shift))
        used = [ops.expand_dims(shared * scale[i] + shift[i], 2) for i in range(len(self.uses))]
        return hidden[..., : self._width], hidden[..., self._width :], used

    def rotate(self, query: Tensor, key: Tensor, visibility: Visibility) -> tuple[Tensor, Tensor]:
        """Returns query and key, rotated by the position."""
        if self.position is None:
            return query, key
        return self.position.rotate(query, key, visibility.query_positions, visibility.key_positions)

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> float | Tensor:
        """Returns the bias that the position adds to the scores, or 0. The query is `(B, T, 1, key_dim)`."""
        bias = None if self.position is None else self.position.bias(query, query_positions, key_positions)
        return 0.0 if bias is None else bias

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "key_dim": self.key_dim,
            "position": serialize(self.position),
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "seed": self.seed,
        }
