"""Pooling: one vector for a sequence of token vectors."""

from __future__ import annotations

from typing import Unpack

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor

# Finite, so that rows of padding alone have no NaN.
_LOWEST = -1e9


class Pooling(keras.layers.Layer):
    """Base class of the poolings, from token vectors to one vector; padding is ignored.

    Call arguments:
        inputs: float `(B, T, D)`.
        padding_mask: boolean `(B, T)`, True = a real token; None for all real.

    Returns:
        `(B, D)`, in the dtype of the layer. Zeros for a row of padding only.
    """

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if padding_mask is None:
            padding_mask = ops.ones_like(inputs[:, :, 0], dtype="bool")
        # Rank 3, so that exported graphs never broadcast across ranks.
        return self.pool(inputs, ops.expand_dims(ops.cast(padding_mask, "bool"), -1))

    def pool(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """`(B, T, D)` and boolean `(B, T, 1)` to `(B, D)`."""
        raise NotImplementedError

    def compute_mask(self, inputs: Tensor, mask: Tensor | None = None) -> None:
        return None

    def compute_output_shape(self, input_shape: Shape, *args: object, **kwargs: object) -> Shape:
        return (input_shape[0], input_shape[-1])


@serializable
class FirstPooling(Pooling):
    """First-token pooling, such as BERT's [CLS]. Padding must be on the right.

    Example:

    >>> import numpy as np
    >>> FirstPooling()(np.array([[[1.0], [2.0]]])).numpy().tolist()
    [[1.0]]

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 3 (C).
    """

    def pool(self, inputs: Tensor, mask: Tensor) -> Tensor:
        return inputs[:, 0] * ops.cast(mask[:, 0], inputs.dtype)


@serializable
class LastPooling(Pooling):
    """Last-token pooling: the last real token, which in a causal model attends to all others.

    Example:

    >>> import numpy as np
    >>> LastPooling()(np.array([[[1.0], [2.0], [9.0]]]), padding_mask=np.array([[1, 1, 0]])).numpy().tolist()
    [[2.0]]

    Reference: Radford et al., Improving Language Understanding by Generative Pre-Training, 2018, section 3.2.
    """

    def pool(self, inputs: Tensor, mask: Tensor) -> Tensor:
        positions = ops.expand_dims(ops.expand_dims(ops.arange(1, ops.shape(inputs)[1] + 1, dtype="int32"), 0), 2)
        positions = ops.where(mask, positions, 0)
        last = ops.logical_and(mask, ops.equal(positions, ops.max(positions, axis=1, keepdims=True)))
        # Not a product with 0: padding may hold an infinity.
        return ops.sum(ops.where(last, inputs, 0.0), axis=1)


@serializable
class MeanPooling(Pooling):
    """Mean pooling over the real tokens: `y = sum_t m_t x_t / sum_t m_t`.

    Example:

    >>> import numpy as np
    >>> MeanPooling()(np.array([[[1.0], [2.0], [9.0]]]), padding_mask=np.array([[1, 1, 0]])).numpy().tolist()
    [[1.5]]

    Reference: Reimers and Gurevych, Sentence-BERT, arXiv 1908.10084, section 3 (MEAN).
    """

    def pool(self, inputs: Tensor, mask: Tensor) -> Tensor:
        weights = ops.cast(mask, inputs.dtype)
        # Not a product with 0: padding may hold an infinity.
        total = ops.sum(ops.where(mask, inputs, 0.0), axis=1)
        return total / ops.maximum(ops.sum(weights, axis=1), 1.0)


@serializable
class MaxPooling(Pooling):
    """Max pooling over the real tokens.

    Example:

    >>> import numpy as np
    >>> MaxPooling()(np.array([[[1.0], [2.0], [9.0]]]), padding_mask=np.array([[1, 1, 0]])).numpy().tolist()
    [[2.0]]

    Reference: Kim, arXiv 1408.5882, section 2 (max over time).
    """

    def pool(self, inputs: Tensor, mask: Tensor) -> Tensor:
        lowest = ops.cast(-1e9 if inputs.dtype != "float16" else -6e4, inputs.dtype)
        largest = ops.max(ops.where(mask, inputs, lowest), axis=1)
        return ops.where(ops.any(mask, axis=1), largest, ops.zeros_like(largest))


@serializable
class AttentionPooling(Pooling):
    """Attention pooling with a learned query: `a = softmax_t(w . tanh(W x_t + b))`, `y = sum_t a_t x_t`.

    Args:
        hidden_dim: int >= 1, or None for D. Width of `W x + b`.

    Example:

    >>> import numpy as np
    >>> tokens = np.array([[[1.0, 4.0], [1.0, 4.0], [3.0, 8.0]]])
    >>> AttentionPooling(hidden_dim=4)(tokens, padding_mask=np.array([[1, 1, 0]])).numpy().tolist()
    [[1.0, 4.0]]

    Reference: Yang et al., Hierarchical Attention Networks, NAACL 2016, equations 5 to 7; the values are the tokens.
    """

    def __init__(self, hidden_dim: int | None = None, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        if hidden_dim is not None and hidden_dim < 1:
            raise ValueError(f"hidden_dim must be at least 1, or None. Received: {hidden_dim}")
        self.hidden_dim = hidden_dim

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        hidden_dim = self.hidden_dim or width
        self.kernel = self.add_weight(name="kernel", shape=(width, hidden_dim), initializer="glorot_uniform")
        self.bias = self.add_weight(name="bias", shape=(hidden_dim,), initializer="zeros")
        self.query = self.add_weight(
            name="query", shape=(hidden_dim,), initializer=keras.initializers.RandomNormal(stddev=0.02)
        )

    def pool(self, inputs: Tensor, mask: Tensor) -> Tensor:
        hidden = ops.tanh(ops.matmul(inputs, ops.cast(self.kernel, inputs.dtype)) + ops.cast(self.bias, inputs.dtype))
        scores = ops.matmul(hidden, ops.expand_dims(ops.cast(self.query, inputs.dtype), -1))
        # Exponentials in float32 under every policy.
        scores = ops.where(mask, ops.cast(scores, "float32"), _LOWEST)
        weights = ops.where(mask, ops.softmax(scores, axis=1), 0.0)
        return ops.sum(ops.where(mask, inputs, 0.0) * ops.cast(weights, inputs.dtype), axis=1)

    def get_config(self) -> Config:
        return {**super().get_config(), "hidden_dim": self.hidden_dim}


POOLINGS = {
    "first": FirstPooling,
    "last": LastPooling,
    "mean": MeanPooling,
    "max": MaxPooling,
    "attention": AttentionPooling,
}
