"""Sequence classification."""

from __future__ import annotations

import keras

from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.dropout import Dropout
from keras_transformer.tasks.heads import check_count, check_tokens, make_pooling, output_layer, token_mask
from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.types import Activation


def SequenceClassifier(
    backbone: keras.Model,
    num_classes: int,
    *,
    pooling: str | keras.layers.Layer = "mean",
    hidden_dim: int | None = None,
    hidden_activation: Activation = "tanh",
    dropout: float = 0.0,
    activation: Activation = "softmax",
    use_bias: bool = True,
    name: str = "sequence_classifier",
) -> keras.Model:
    """Sequence classifier, a head over the pooled tokens: `softmax(W h + b)`, `h = pool(tokens)`.

    Args:
        backbone: `keras.Model` to tokens `(B, T, D)`, such as `models.Encoder`. Its layers are used, not copied: a backbone
            from a `MaskedLanguageModel` keeps its pretrained weights.
        num_classes: int >= 1.
        pooling: "first", "last", "mean", "max", "attention", or a layer called with `(tokens, padding_mask=...)`.
        hidden_dim: int, or None. Width of `h = tanh(W' pool(tokens) + b')`, the pooler of BERT; None for no such layer.
        hidden_activation: activation of this layer.
        dropout: float in [0, 1). Of `h`.
        activation: "softmax" for probabilities, "sigmoid" for multiple labels, None for logits, as for
            `training.MaskedCrossentropy`.
        use_bias: bool. Whether the head has a bias.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to "probabilities" or "logits", float32 `(B, num_classes)`, under every dtype
        policy.

    Raises:
        ValueError: unknown pooling, `num_classes` below 1, or a backbone whose output is not `(B, T, D)`.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=50)
    >>> SequenceClassifier(backbone, num_classes=6, pooling="max").output_shape
    (None, 6)

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 4.1; there `pooling="first"` and `hidden_dim=D`.
    """
    check_tokens(backbone)
    check_count("num_classes", num_classes)
    x = make_pooling(pooling)(backbone.output, padding_mask=token_mask(backbone))
    if hidden_dim is not None:
        x = keras.layers.Dense(
            hidden_dim, activation=get_activation(hidden_activation), dtype="float32", name="pooler"
        )(x)
    x = Dropout(dropout, dtype="float32", name="head_dropout")(x)
    return TaskModel(backbone.input, output_layer(num_classes, activation, use_bias)(x), name=name)
