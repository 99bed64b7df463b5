"""Classification of pairs of texts with a cross-encoder."""

from __future__ import annotations

import keras

from keras_transformer.tasks.heads import input_named
from keras_transformer.tasks.text.sequence_classifier import SequenceClassifier
from keras_transformer.utils.types import Activation


def PairClassifier(
    backbone: keras.Model,
    num_classes: int,
    *,
    pooling: str | keras.layers.Layer = "first",
    hidden_dim: int | None = None,
    dropout: float = 0.0,
    activation: Activation = "softmax",
    name: str = "pair_classifier",
) -> keras.Model:
    """Cross-encoder: classifies two texts in one sequence, so that each token attends to both.

    `text.Tokenizer.encode_pair` encodes such sequences with segments. `PairMatcher` encodes the texts separately.

    Args:
        backbone: `keras.Model` to tokens `(B, T, D)` that takes "segment_ids", such as `models.Encoder(num_segments=2)`.
        num_classes: int >= 1.
        pooling: "first", "last", "mean", "max", "attention", or a layer, as in `SequenceClassifier`.
        hidden_dim: int. Width of the tanh layer before the head (BERT's pooler); None for D.
        dropout: float in [0, 1). Of the pooled vector.
        activation: "softmax", "sigmoid", or None for logits.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to "probabilities" or "logits", float32 `(B, num_classes)`, under every dtype
        policy.

    Raises:
        ValueError: the backbone takes no segments; an invalid argument of `SequenceClassifier`.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=50, num_segments=2)
    >>> PairClassifier(backbone, num_classes=2).output_shape
    (None, 2)

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 4.1 and figure 4a.
    """
    if input_named(backbone, "segment_ids") is None:
        raise ValueError(
            f"{backbone.name!r} takes no 'segment_ids', which distinguish the texts: build it with num_segments=2, or"
            " use SequenceClassifier."
        )
    hidden_dim = backbone.output.shape[-1] if hidden_dim is None else hidden_dim
    return SequenceClassifier(
        backbone,
        num_classes,
        pooling=pooling,
        hidden_dim=hidden_dim,
        dropout=dropout,
        activation=activation,
        name=name,
    )
