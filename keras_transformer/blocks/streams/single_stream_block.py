"""The single-stream block of FLUX.1: attention and feed-forward in parallel, inside one adaLN-Zero."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.blocks.block import serialize_template, template
from keras_transformer.blocks.residual.ada_ln_zero import AdaLNZeroResidual
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Shape, Tensor


@serializable
class SingleStreamBlock(keras.layers.Layer):
    """Single-stream block: `x + α(c) (attention(y) + feedforward(y))`, `y = norm(x) (1 + γ(c)) + β(c)`.

    Args:
        attention: `MultiHeadAttention`, or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config.
        norm: a name in `NORMS`, or a norm layer to copy, without scale and offset of its own.
        condition_dim: int >= 1, or None. Width C of the condition. Default None: the width of the tokens.

    Call arguments:
        inputs: float `(B, T, D)`: the tokens of all sequences.
        condition: float `(B, C)`.
        positions: int `(T,)` or `(B, T)`, or None for 0, 1, 2, ...
        padding_mask: boolean `(B, T)`, True = a real token; or None.

    Returns:
        `(B, T, D)`.

    Raises:
        ValueError: an unknown norm; no condition.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = SingleStreamBlock(MultiHeadAttention(2, 4, use_output_bias=False), DenseFeedForward(16))
    >>> tuple(block(np.ones((1, 5, 8)), condition=np.ones((1, 8))).shape)
    (1, 5, 8)

    Reference: the published code of FLUX.1 (Black Forest Labs, 2024); Dehghani et al., Scaling Vision Transformers to 22
    Billion Parameters, arXiv 2302.05442, section 2. There one matrix reads the concatenation of both outputs: it is that of
    the attention's output, without a bias of its own, and that of the feed-forward's, one above the other.
    """

    def __init__(
        self,
        attention: LayerLike,
        feedforward: LayerLike,
        norm: LayerLike = "layer_norm",
        condition_dim: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.attention = resolve(attention, {}, keras.layers.Layer, argument="attention")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.norm = template(norm, NORMS, keras.layers.Layer)
        self.condition_dim = condition_dim
        self._residual = AdaLNZeroResidual(
            self.norm, condition_dim=condition_dim, name="residual", dtype=self.dtype_policy
        )

    def build(self, inputs_shape: Shape) -> None:
        self._residual.build(inputs_shape)
        self.attention.build(inputs_shape, inputs_shape)
        self.feedforward.build(inputs_shape)

    def call(
        self,
        inputs: Tensor,
        condition: Tensor,
        positions: Tensor | None = None,
        padding_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Tensor:
        x = self._residual.pre(inputs, condition=condition)
        attended = self.attention(x, x, value_mask=padding_mask, positions=positions, training=training)
        return self._residual.post(inputs, attended + self.feedforward(x, training=training), condition=condition)

    def compute_output_shape(self, inputs_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "attention": serialize(self.attention),
            "feedforward": serialize(self.feedforward),
            "norm": serialize_template(self.norm),
            "condition_dim": self.condition_dim,
        }
