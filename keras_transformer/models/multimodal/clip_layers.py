"""Layers of CLIP and SigLIP: end-token pooling, normalization, contrastive logits, and the model of both encoders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class EndTokenPooling(keras.layers.Layer):
    """End-token pooling: the vector of the end token of each text.

    Args:
        end_id: int, or None. The first token with this id; None for the first one with the highest id of its row.

    Call arguments:
        inputs: float `(B, T, D)`.
        token_ids: int `(B, T)`.

    Returns:
        `(B, D)`; the vector of the first token if no token has the id.

    Example:

    >>> import numpy as np
    >>> EndTokenPooling(end_id=9)(np.array([[[1.0], [2.0], [3.0]]]), np.array([[5, 9, 9]])).numpy().tolist()
    [[2.0]]
    """

    def __init__(self, end_id: int | Sequence[int] | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.end_id = end_id

    def call(self, inputs: Tensor, token_ids: Tensor) -> Tensor:
        last = ops.max(token_ids, axis=1, keepdims=True) if self.end_id is None else self.end_id
        length = ops.shape(token_ids)[1]
        positions = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
        # Not `ops.argmax`: TFLite has no built-in op for its Keras implementation.
        first = ops.min(ops.where(ops.equal(token_ids, last), positions, length), axis=1, keepdims=True)
        found = ops.equal(positions, ops.where(ops.equal(first, length), 0, first))
        return ops.sum(ops.where(ops.expand_dims(found, -1), inputs, ops.zeros_like(inputs)), axis=1)

    def compute_output_shape(self, inputs_shape: Shape, token_ids_shape: Shape) -> Shape:
        return (inputs_shape[0], inputs_shape[-1])

    def get_config(self) -> Config:
        return {**super().get_config(), "end_id": self.end_id}


@serializable
class UnitLength(keras.layers.Layer):
    """L2 normalization `x / |x|`; a zero vector stays zero.

    Call arguments:
        inputs: float `(..., D)`.

    Returns:
        The same shape.

    Example:

    >>> import numpy as np
    >>> UnitLength()(np.array([[3.0, 4.0]])).numpy().round(3).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """

    def call(self, inputs: Tensor) -> Tensor:
        return inputs / ops.sqrt(ops.maximum(ops.sum(inputs * inputs, axis=-1, keepdims=True), 1e-24))

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        return inputs_shape

    def get_config(self) -> Config:  # Keras serializes a dtype policy only if this is overridden.
        return super().get_config()


@serializable
class ContrastiveLogits(keras.layers.Layer):
    """Scaled similarities of all pairs of vectors of two kinds: `exp(s) U V^T + b`, with learned scalars s and b.

    Args:
        initial_temperature: float > 0. Initial value of `exp(-s)`.
        max_scale: float. Upper bound of `exp(s)` in training; loaded weights may exceed it. None for no bound.
        initial_bias: float. Initial value of b; None for no b.

    Call arguments:
        first: float `(B, D)`. U.
        second: float `(C, D)`. V.

    Returns:
        `(B, C)`.

    Example:

    >>> import numpy as np
    >>> ContrastiveLogits(initial_temperature=0.5)(np.eye(2), np.eye(2)).numpy().round(2).tolist()
    [[2.0, 0.0], [0.0, 2.0]]

    Reference: Radford et al., arXiv 2103.00020, section 2.5, and figure 3; the bias: Zhai et al., SigLIP, arXiv 2303.15343,
    algorithm 1.
    """

    def __init__(
        self,
        initial_temperature: float = 0.07,
        max_scale: float | None = 100.0,
        initial_bias: float | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if not (initial_temperature > 0 and (max_scale is None or max_scale > 0)):
            raise ValueError(
                f"initial_temperature and max_scale must be above 0. Received: {initial_temperature}, {max_scale}"
            )
        self.initial_temperature = initial_temperature
        self.max_scale = max_scale
        self.initial_bias = initial_bias

    def build(self, first_shape: Shape, second_shape: Shape) -> None:
        self.logit_scale = self.add_weight(
            name="logit_scale",
            shape=(),
            initializer=keras.initializers.Constant(-math.log(self.initial_temperature)),
            constraint=None if self.max_scale is None else AtMost(math.log(self.max_scale)),
        )
        if self.initial_bias is not None:
            initializer = keras.initializers.Constant(self.initial_bias)
            self.logit_bias = self.add_weight(name="logit_bias", shape=(), initializer=initializer)

    def call(self, first: Tensor, second: Tensor) -> Tensor:
        scale = ops.exp(ops.cast(self.logit_scale, first.dtype))
        logits = ops.matmul(first * scale, ops.transpose(second))
        return logits if self.initial_bias is None else logits + ops.cast(self.logit_bias, logits.dtype)

    def compute_output_shape(self, first_shape: Shape, second_shape: Shape) -> Shape:
        return (first_shape[0], second_shape[0])

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "initial_temperature": self.initial_temperature,
            "max_scale": self.max_scale,
            "initial_bias": self.initial_bias,
        }


@serializable
class AtMost(keras.constraints.Constraint):
    """Constraint: weights are clipped to a maximum.

    Args:
        maximum: float.

    Example:

    >>> AtMost(1.0)(keras.ops.array([0.5, 2.0])).numpy().tolist()
    [0.5, 1.0]
    """

    def __init__(self, maximum: float) -> None:
        self.maximum = maximum

    def __call__(self, w: Tensor) -> Tensor:
        return ops.minimum(w, self.maximum)

    def get_config(self) -> Config:
        return {"maximum": self.maximum}


def dual_encoder(
    vision: keras.Model, text: keras.Model, logits: ContrastiveLogits, vector: str, name: str
) -> keras.Model:
    """Two towers, and the similarity of every image to every text.

    Args:
        vision, text: models whose outputs are dicts.
        logits: `ContrastiveLogits`.
        vector: str. The output of a tower that is compared, `(B, E)`.
        name: str.

    Returns:
        `keras.Model`: the inputs of both to {"logits": float32 `(B, B)`, images in rows and texts in columns,
        "image_embedding" and "text_embedding": float32 `(B, E)` of length 1}.
    """
    images = vision.input if isinstance(vision.input, dict) else {"images": vision.input}
    unit = {
        f"{kind}_embedding": UnitLength(name=f"{kind}_embedding", dtype="float32")(tower.output[vector])
        for kind, tower in (("image", vision), ("text", text))
    }
    return keras.Model({**images, **text.input}, {"logits": logits(*unit.values()), **unit}, name=name)
