"""The block of MM-DiT: two sequences with weights of their own and joint attention."""

from __future__ import annotations

from typing import Unpack

import keras

from keras_transformer.attention.layers.cross.joint_attention import JointAttention
from keras_transformer.blocks.block import serialize_template, template
from keras_transformer.blocks.residual.ada_ln_zero import AdaLNZeroResidual
from keras_transformer.layers.modulation import Modulation, norm_without_weights
from keras_transformer.layers.norms import NORMS
from keras_transformer.utils.serialization import clone, resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Outputs, Shape, Tensor


@serializable
class JointBlock(keras.layers.Layer):
    """Joint block: attention over two sequences and a feed-forward for each, each part inside adaLN-Zero.

    Args:
        attention: `JointAttention`, or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config.
        context_feedforward: the same for the context; None for a last block, where the context is only attended to, and
            `attention` has no `context_output`.
        norm: a name in `NORMS`, or a norm layer to copy, without scale and offset of its own.
        condition_dim: int >= 1, or None. Width C of the condition. Default None: the widths of the tokens.

    Call arguments:
        inputs: float `(B, T, D)`.
        context: float `(B, S, E)`.
        condition: float `(B, C)`.
        context_mask: boolean `(B, S)`, True = a real token; or None.

    Returns:
        `(B, T, D)` and `(B, S, E)`; in a last block the first alone.

    Raises:
        ValueError: a feed-forward of the context with attention without its output, or the reverse.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = JointBlock(JointAttention(2, 4), DenseFeedForward(16), DenseFeedForward(16))
    >>> outputs = block(np.ones((1, 5, 8)), np.ones((1, 3, 8)), condition=np.ones((1, 8)))
    >>> [tuple(output.shape) for output in outputs]
    [(1, 5, 8), (1, 3, 8)]

    Reference: Esser et al., Scaling Rectified Flow Transformers, arXiv 2403.03206, section 4 and figure 2b.
    """

    def __init__(
        self,
        attention: JointAttention | Config,
        feedforward: LayerLike,
        context_feedforward: LayerLike | None = None,
        norm: LayerLike = "layer_norm",
        condition_dim: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.attention: JointAttention = resolve(attention, {}, JointAttention, argument="attention")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.context_feedforward = resolve(context_feedforward, {}, keras.layers.Layer, argument="context_feedforward")
        if self.attention.context_output != (self.context_feedforward is not None):
            raise ValueError(
                "context_feedforward is for attention with context_output, and required with it. Received: "
                f"context_output={self.attention.context_output}, context_feedforward={context_feedforward}"
            )
        self.norm = template(norm, NORMS, keras.layers.Layer)
        self.condition_dim = condition_dim
        self._attention_residual, self._feedforward_residual = self._residuals("")
        if self.context_feedforward is not None:
            self._context_attention_residual, self._context_feedforward_residual = self._residuals("context_")
        else:
            plain = norm_without_weights(resolve(self.norm, NORMS, keras.layers.Layer, argument="norm"))
            self._context_norm = clone(plain, name="context_norm", dtype=self.dtype_policy)
            self._context_modulation = Modulation(condition_dim, name="context_modulation", dtype=self.dtype_policy)

    def _residuals(self, prefix):
        options = {"condition_dim": self.condition_dim, "dtype": self.dtype_policy}
        return [
            AdaLNZeroResidual(self.norm, name=f"{prefix}{part}_residual", **options)
            for part in ("attention", "feedforward")
        ]

    def build(self, inputs_shape: Shape, context_shape: Shape, condition_shape: Shape | None = None) -> None:
        self.attention.build(inputs_shape, context_shape)
        of_inputs = [self._attention_residual, self.feedforward, self._feedforward_residual]
        if self.context_feedforward is None:
            of_context = [self._context_norm, self._context_modulation]
        else:
            of_context = [
                self._context_attention_residual,
                self.context_feedforward,
                self._context_feedforward_residual,
            ]
        for shape, layers in ((inputs_shape, of_inputs), (context_shape, of_context)):
            for layer in layers:
                layer.build(shape)

    def call(
        self,
        inputs: Tensor,
        context: Tensor,
        condition: Tensor,
        context_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> Outputs:
        x = self._attention_residual.pre(inputs, condition=condition)
        options = {"context_mask": context_mask, "training": training}
        if self.context_feedforward is None:
            attended = self.attention(x, self._context_modulation(self._context_norm(context), condition), **options)
            return self._finish(inputs, attended, condition, "", training)
        attended, of_context = self.attention(
            x, self._context_attention_residual.pre(context, condition=condition), **options
        )
        return (
            self._finish(inputs, attended, condition, "", training),
            self._finish(context, of_context, condition, "context_", training),
        )

    def _finish(self, tokens, attended, condition, prefix, training):
        """Adds what a sequence has attended to, and its feed-forward."""
        first, second = (getattr(self, f"_{prefix}{part}_residual") for part in ("attention", "feedforward"))
        feedforward = getattr(self, f"{prefix}feedforward")
        tokens = first.post(tokens, attended, condition=condition)
        return second.post(
            tokens, feedforward(second.pre(tokens, condition=condition), training=training), condition=condition
        )

    def compute_output_shape(
        self, inputs_shape: Shape, context_shape: Shape, *args: object
    ) -> Shape | tuple[Shape, Shape]:
        return inputs_shape if self.context_feedforward is None else (inputs_shape, context_shape)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "attention": serialize(self.attention),
            "feedforward": serialize(self.feedforward),
            "context_feedforward": serialize(self.context_feedforward),
            "norm": serialize_template(self.norm),
            "condition_dim": self.condition_dim,
        }
