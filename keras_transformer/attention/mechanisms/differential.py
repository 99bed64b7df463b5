"""Differential attention: the difference of two softmax attentions."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Unpack

import keras
from keras import ops

from keras_transformer.attention.masks import Visibility
from keras_transformer.attention.mechanism import ALL_CAPABILITIES
from keras_transformer.attention.mechanisms.softmax_based import SoftmaxBasedMechanism
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Initializer, LayerOptions, Shape, Tensor

if TYPE_CHECKING:
    from keras_transformer.positions import AttentionPosition

_VECTORS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


@serializable
class DifferentialAttention(SoftmaxBasedMechanism):
    """Differential attention, `(1 - λ_init) · norm((A_1 - λ A_2) V)`: what both attentions see in common cancels out.

    Head i of the first half of the heads and head i of the second half are a pair, with attention weights `A_1` and `A_2`
    and the values of both, side by side. `λ = exp(q_1 · k_1) - exp(q_2 · k_2) + λ_init` for learned vectors q and k of the
    layer, and `norm` is an RMS norm of each pair without a scale. Memory and time grow with T · S.

    Args:
        lambda_init: float in [0, 1). Defaults to 0.8. `initial_lambda` returns that of the paper for the index of a block.
        epsilon: float > 0. Of the norm. Defaults to 1e-5.
        scoring: a name in `SCORINGS`, or an instance. The default is scaled dot.
        dropout: float in [0, 1). Dropout rate of the weights of each of both attentions.
        seed: int or None. Seed of the dropout.
        vector_initializer: initializer of q and k. Defaults to a normal distribution of deviation 0.1.

    Call arguments: see `Mechanism`. Causal and bidirectional, self- and cross-attention, all masks. Positions that rotate
    queries and keys. The cache keeps all keys and values.

    Returns:
        The context `(B, T, N, H_value)`: a pair fills two heads. With a cache, `(context, next_cache)`.

    Raises:
        ValueError: an odd number of query heads or of key/value heads; `lambda_init` out of range; a call with scores.

    Weights: "lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2", `(H,)` each.

    Example:

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1, 5, 4, 8)).astype("float32")
    >>> mechanism = DifferentialAttention(DifferentialAttention.initial_lambda(0))
    >>> tuple(mechanism(x, x, x).shape), round(mechanism.lambda_init, 2)
    ((1, 5, 4, 8), 0.2)

    Reference: Ye et al., Differential Transformer, arXiv 2410.05258, section 2.1. Deviations: the norm has no learned scale,
    as in transformers' DiffLlama; heads of a pair are half the heads apart, as there, and not neighbors.
    """

    supports = ALL_CAPABILITIES - {"scores", "bias", "query", "values"}
    head_multiple = 2

    def __init__(
        self,
        lambda_init: float = 0.8,
        epsilon: float = 1e-5,
        scoring: str | Config | keras.layers.Layer = "scaled_dot",
        dropout: float = 0.0,
        seed: int | None = None,
        vector_initializer: Initializer | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(scoring, dropout, seed, **kwargs)
        if not 0 <= lambda_init < 1:
            raise ValueError(f"lambda_init must be in [0, 1). Received: {lambda_init}")
        self.lambda_init = lambda_init
        self.epsilon = epsilon
        normal = keras.initializers.RandomNormal(stddev=0.1)
        self.vector_initializer = keras.initializers.get(normal if vector_initializer is None else vector_initializer)

    @staticmethod
    def initial_lambda(index: int) -> float:
        """Returns `0.8 - 0.6 exp(-0.3 index)`, for the index of a block, counted from 0."""
        return 0.8 - 0.6 * math.exp(-0.3 * index)

    def build(self, query_shape: Shape, key_shape: Shape, value_shape: Shape) -> None:
        for name, count in (("query", query_shape[2]), ("key/value", key_shape[2])):
            if count % self.head_multiple:
                raise ValueError(
                    f"DifferentialAttention needs an even number of {name} heads, which form pairs. Received: {count}"
                )
        query, key = ((*shape[:2], shape[2] // 2, shape[3]) for shape in (query_shape, key_shape))
        self.softmax.build(query, key, (*value_shape[:2], value_shape[2] // 2, 2 * value_shape[3]))
        for name in _VECTORS:
            options = {"shape": (query_shape[3],), "initializer": self.vector_initializer.clone()}
            setattr(self, name, self.add_weight(name=name, **options))

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visibility: Visibility,
        position: AttentionPosition | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor:
        values = ops.concatenate(_halves(value), axis=-1)  # (B, S, K / 2, 2 H_value)
        contexts = [
            self.softmax(*heads, values, visibility=visible, training=training)
            for *heads, visible in zip(_halves(query), _halves(key), _of_halves(visibility), strict=True)
        ]
        context = contexts[0] - ops.cast(self._lambda(), contexts[0].dtype) * contexts[1]
        context = ops.rms_normalization(ops.cast(context, "float32"), axis=-1, epsilon=self.epsilon)
        context = ops.cast((1 - self.lambda_init) * context, query.dtype)
        return ops.reshape(context, (-1, ops.shape(query)[1], query.shape[2], value.shape[3]))

    def _lambda(self) -> Tensor:
        """Returns λ, float32 `()`."""
        q1, k1, q2, k2 = (ops.cast(getattr(self, name), "float32") for name in _VECTORS)
        return ops.exp(ops.sum(q1 * k1)) - ops.exp(ops.sum(q2 * k2)) + self.lambda_init

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "lambda_init": self.lambda_init,
            "epsilon": self.epsilon,
            "vector_initializer": keras.initializers.serialize(self.vector_initializer),
        }


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first and the second half of the heads of `(B, T, N, H)`."""
    half = x.shape[2] // 2
    return x[:, :, :half], x[:, :, half:]


def _of_halves(visibility: Visibility) -> tuple[Visibility, Visibility]:
    """Returns the visibility of both halves of the heads, which differs if the attention mask has heads."""
    mask = visibility.attention_mask
    if mask is None or len(mask.shape) < 4 or mask.shape[1] == 1:
        return visibility, visibility
    half = mask.shape[1] // 2
    first, second = (dataclasses.replace(visibility, attention_mask=part) for part in (mask[:, :half], mask[:, half:]))
    return first, second
