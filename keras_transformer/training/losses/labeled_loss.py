"""The loss of the labeled tokens of a language model, in the form that fits its head."""

from __future__ import annotations

import keras

from keras_transformer.backend.variable_values import value_of
from keras_transformer.tasks import LanguageModel
from keras_transformer.training.losses.chunked_crossentropy import chunked_crossentropy
from keras_transformer.training.losses.linear_crossentropy import linear_crossentropy
from keras_transformer.utils.types import Tensor


def labeled_loss(
    model: LanguageModel, hidden: Tensor, labels: Tensor, weights: Tensor, chunk_size: int, training: bool = True
) -> Tensor:
    """Returns the sum of the weighted cross-entropies of the tokens with a weight, `chunk_size` of them at a time.

    Args:
        model: `tasks.LanguageModel`.
        hidden: float `(n, D)`, outputs of its backbone.
        labels: int32 `(n,)`, in [0, V).
        weights: float32 `(n,)`.
        chunk_size: int >= 1.
        training: bool. Whether gradients are needed.

    Returns:
        float32 `()`.
    """
    table = _plain_table(model) if training else None
    if table is None:
        layers = [head_layer(model), model._logits]
        return chunked_crossentropy(hidden, labels, weights, model._to_logits, layers, chunk_size, training)
    hidden = hidden if model._head_scale is None else model._head_scale(hidden)
    return linear_crossentropy(hidden, labels, weights, value_of(table), chunk_size, table.trainable)


def head_layer(model: LanguageModel) -> keras.layers.Layer:
    """Returns the layer with the weights of the product of the head: the tied embedding, or a dense layer."""
    return model._head if model._embedding is None else model._embedding


def _plain_table(model):
    """Returns the float32 table of a tied head that is nothing but its product with the hidden states, or None."""
    embedding, logits = model._embedding, model._logits
    is_plain = type(embedding) is keras.layers.ReversibleEmbedding and embedding.tie_weights
    is_plain = is_plain and not (
        logits.use_bias or logits.soft_cap or embedding.logit_soft_cap or embedding.reverse_dtype
    )
    is_plain = is_plain and not (embedding.lora_enabled or embedding.quantization_mode)
    is_float32 = is_plain and embedding.compute_dtype == embedding.variable_dtype == logits.compute_dtype == "float32"
    return embedding.embeddings if is_float32 else None
