"""Logits of a tied embedding with a gradient in the layout of the table: TensorFlow's own is transposed in memory."""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.backend.variable_values import value_of
from keras_transformer.backend.xla import is_traced_for_xla
from keras_transformer.utils.types import Tensor


def tied_logits(embedding: keras.layers.ReversibleEmbedding, x: Tensor) -> Tensor:
    """Returns `embedding(x, reverse=True)`, for training.

    Args:
        embedding: the tied table, `(V, D)`.
        x: float `(B, T, D)`.

    Returns:
        `(B, T, V)`.

    Example:

    >>> import numpy as np
    >>> table = keras.layers.ReversibleEmbedding(3, 2)
    >>> table.build()
    >>> table.set_weights([np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])])
    >>> np.array(tied_logits(table, np.array([[[2.0, 3.0]]], "float32"))).tolist()
    [[[2.0, 3.0, 5.0]]]
    """
    # XLA chooses layouts itself. Other dtypes and quantized or adapted tables are left to the layer.
    is_plain = type(embedding) is keras.layers.ReversibleEmbedding and embedding.tie_weights
    is_plain = is_plain and embedding.quantization_mode is None and not embedding.lora_enabled
    is_plain = is_plain and embedding.reverse_dtype is None and embedding.logit_soft_cap is None
    is_plain = is_plain and embedding.compute_dtype == embedding.variable_dtype == "float32"
    if keras.backend.backend() != "tensorflow" or is_traced_for_xla() or not is_plain:
        return embedding(x, reverse=True)
    rows = ops.reshape(x, (-1, embedding.output_dim))
    return ops.reshape(_product(rows, value_of(embedding.embeddings)), (*ops.shape(x)[:-1], embedding.input_dim))


@ops.custom_gradient
def _product(rows: Tensor, table: Tensor) -> tuple[Tensor, Callable[..., tuple[Tensor, Tensor]]]:
    def backward(*arguments: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, Tensor]:
        gradient = arguments[0] if upstream is None else upstream
        return ops.matmul(gradient, table), ops.matmul(ops.transpose(gradient), rows)

    return ops.matmul(rows, ops.transpose(table)), backward
