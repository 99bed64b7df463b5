"""The transformer encoder block."""

from __future__ import annotations

import functools
from typing import Any, Unpack

import keras

from keras_transformer.attention import capture
from keras_transformer.attention.masks import implicit_mask
from keras_transformer.blocks.block import Block, serialize_template, template
from keras_transformer.blocks.encoders.first_token import check_first_token
from keras_transformer.blocks.residual import RESIDUALS
from keras_transformer.blocks.residual.residual import Residual
from keras_transformer.utils.serialization import resolve, serializable, serialize
from keras_transformer.utils.types import Config, LayerLike, LayerOptions, Outputs, Shape, Tensor


@serializable
class EncoderBlock(Block):
    """Transformer encoder block: a mixer and a feed-forward, each inside a residual scheme.

    With `residual="pre"`: `x = x + mixer(norm(x))`, then `x = x + feedforward(norm(x))`.

    Args:
        mixer: `MultiHeadAttention`, another `TokenMixer`, or its config.
        feedforward: a layer `(B, T, D)` to `(B, T, D)`, or its config.
        residual: a name in `RESIDUALS`, or a `Residual` instance to copy. Default "pre".
        norm: a name in `NORMS`, or a norm layer to copy. Used if `residual` is a name.
        dropout: float in [0, 1). Dropout rate of the output of each sublayer. Default 0.
        seed: int or None. Seed of the dropout.
        mixer_residual: residual scheme of the mixer, if it differs from `residual`. Default None.
        recompute: bool. Whether training keeps only the inputs of the block and recomputes the activations in the backward
            pass: less memory, a third more time. `training.recompute_blocks` sets it in a whole model. Default False.

    Call arguments:
        inputs: float `(B, T, D)`; or `(B, rows, columns, D)`, for a mixer and a feed-forward that take grids of tokens: see
            `SpatialReductionAttention`.
        padding_mask: boolean `(B, T)`, True = a real token. None: the implicit Keras mask, if any.
        attention_mask: boolean `(T, T)`, `(B, T, T)` or `(B, N, T, T)`.
        positions: int `(T,)` or `(B, T)`: see `MultiHeadAttention`; or vectors, for a mixer that takes them: see
            `PositionedAttention`.
        global_mask: boolean `(B, T)`, for a mixer that takes one: see `LongformerAttention`.
        segment_ids: int `(B, T)`, for a mixer that takes them: see `TwoStreamAttention`.
        memory: float `(B, M, D)`, for a mixer that takes one: see `TwoStreamAttention`.
        condition: float `(B, C)` or `(B, T, C)`, for a residual scheme that takes one: see `AdaLNZeroResidual`.
        first_token_only: bool. Whether only the first token is computed, from all as keys: see `models.first_token`.

    Returns:
        The shape of the inputs; `(B, 1, D)` with `first_token_only`.

    Raises:
        ValueError: unknown name of a residual scheme or a norm; a condition missing, or given to schemes that take none;
            `first_token_only` with other arguments than a padding mask, or for parts that cannot compute one token alone.

    Example:

    >>> import numpy as np
    >>> from keras_transformer.attention import MultiHeadAttention
    >>> from keras_transformer.feedforward import DenseFeedForward
    >>> block = EncoderBlock(MultiHeadAttention(2, 4), DenseFeedForward(16), residual="pre")
    >>> tuple(block(np.ones((1, 3, 8))).shape)
    (1, 3, 8)

    Reference: Vaswani et al., arXiv 1706.03762, section 3.1.
    """

    def __init__(
        self,
        mixer: LayerLike,
        feedforward: LayerLike,
        residual: str | Residual = "pre",
        norm: LayerLike = "layer_norm",
        dropout: float = 0.0,
        seed: int | None = None,
        mixer_residual: str | Residual | None = None,
        recompute: bool = False,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(residual, norm, dropout, seed, recompute, **kwargs)
        self._mixer_template = None if mixer_residual is None else template(mixer_residual, RESIDUALS, Residual)
        self.mixer = resolve(mixer, {}, keras.layers.Layer, argument="mixer")
        self.feedforward = resolve(feedforward, {}, keras.layers.Layer, argument="feedforward")
        self.mixer_residual = self._make_residual("mixer_residual", self._mixer_template)
        self.feedforward_residual = self._make_residual("feedforward_residual")

    def build(self, inputs_shape: Shape) -> None:
        shape = self._build_streams(self.mixer_residual, inputs_shape)
        self._build_sublayer(self.mixer_residual, self.mixer, shape, shape)
        self._build_sublayer(self.feedforward_residual, self.feedforward, shape)

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        global_mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
        memory: Tensor | None = None,
        condition: Tensor | None = None,
        first_token_only: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        self._check_condition(condition, self.mixer_residual, self.feedforward_residual)
        padding_mask = implicit_mask(inputs) if padding_mask is None else padding_mask
        if first_token_only:
            others = (attention_mask, positions, global_mask, segment_ids, memory, condition)
            check_first_token(self, any(each is not None for each in others))
            first = functools.partial(self._first_token, padding_mask=padding_mask, training=training)
            return self._run(first, inputs, training=training)
        own = {"global_mask": global_mask, "segment_ids": segment_ids, "memory": memory}
        own = {name: value for name, value in own.items() if value is not None}

        def mix(x):
            return self.mixer(
                x,
                x,
                value_mask=padding_mask,
                attention_mask=attention_mask,
                positions=positions,
                training=training,
                **own,
            )

        def run(x, condition=None):
            return self._apply_sublayers(x, mix, padding_mask, training, condition)

        tensors = [inputs] if condition is None else [inputs, condition]
        return self._run(run, *tensors, training=training)

    def _apply_sublayers(self, x, mix, padding_mask, training, condition=None):
        """Calls `mix`, a function of one tensor, and the feed-forward, each inside its residual scheme."""

        def feed_forward(x):
            return self._feed_forward(x, padding_mask, training)

        options = {"mask": padding_mask, "training": training, "condition": condition}
        x = self._apply_residual(self.mixer_residual, mix, self._split_streams(x), **options)
        x = self._apply_residual(self.feedforward_residual, feed_forward, x, **options)
        return self._merge_streams(x, padding_mask, training)

    def _first_token(self, x, padding_mask, training):
        """Returns the first token of the output, `(B, 1, D)`: of the attention, only its row of scores is computed."""
        if capture.is_captured(self.mixer):  # Whoever records the scores gets those of all tokens.
            return self(x, padding_mask=padding_mask, training=training)[:, :1]
        first_mask = None if padding_mask is None else padding_mask[:, :1]

        def mix(h):
            return self.mixer(h[:, :1], h, value_mask=padding_mask, training=training)

        def feed_forward(x):
            return self._feed_forward(x, first_mask, training)

        x = self._apply_residual(self.mixer_residual, mix, x, padding_mask, training, first_token_only=True)
        return self._apply_residual(self.feedforward_residual, feed_forward, x, first_mask, training)

    def compute_output_spec(self, inputs: Tensor, *args: Any, first_token_only: bool = False, **kwargs: Any) -> Outputs:
        if first_token_only:
            return keras.KerasTensor((inputs.shape[0], 1, inputs.shape[-1]), dtype=self.compute_dtype)
        return super().compute_output_spec(inputs, *args, **kwargs)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "mixer": serialize(self.mixer),
            "feedforward": serialize(self.feedforward),
            "mixer_residual": serialize_template(self._mixer_template),
        }
