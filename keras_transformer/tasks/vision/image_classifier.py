"""Image classification."""

from __future__ import annotations

import keras

from keras_transformer.layers.dropout import Dropout
from keras_transformer.tasks.heads import check_tokens
from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.types import Activation

_POOLINGS = ("class_token", "mean", "class_token_and_mean")


def ImageClassifier(
    backbone: keras.Model,
    num_classes: int,
    *,
    pooling: str = "class_token",
    dropout: float = 0.0,
    activation: Activation = "softmax",
    name: str = "image_classifier",
) -> keras.Model:
    """Image classifier: a backbone of image tokens with a linear head over one pooled vector.

    Args:
        backbone: `keras.Model` from images to tokens `(B, T, D)`, such as `models.ViT`.
        num_classes: int >= 1.
        pooling: "class_token": the first token; "mean": the mean of the patches; "class_token_and_mean": their
            concatenation.
        dropout: float in [0, 1). Of the pooled token.
        activation: "softmax" for probabilities, None for logits.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to "probabilities" or "logits", float32 `(B, num_classes)`, under every dtype
        policy.

    Raises:
        ValueError: a backbone that is not a Functional model to `(B, T, D)`, an unknown pooling, or one with the class token
            for a backbone without it.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.ViT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8)
    >>> ImageClassifier(backbone, num_classes=10).output_shape
    (None, 10)

    Reference: Dosovitskiy et al., arXiv 2010.11929, section 3.1 and appendix D.3 (mean pooling); class token and mean:
    Oquab et al., DINOv2, arXiv 2304.07193, appendix B.3.
    """
    check_tokens(backbone)
    if pooling not in _POOLINGS:
        raise ValueError(f"pooling must be one of {_POOLINGS}. Received: {pooling!r}")
    if pooling != "mean" and not _has_class_token(backbone):
        raise ValueError(f"{backbone.name!r} has no class token: use pooling='mean'.")
    x = _pool(backbone.output, pooling, num_prefix_tokens(backbone))
    x = Dropout(dropout, name="head_dropout")(x)
    head = keras.layers.Dense(
        num_classes,
        activation=activation,
        dtype="float32",
        name="probabilities" if activation == "softmax" else "logits",
    )
    return TaskModel(backbone.input, head(x), name=name)


def _pool(tokens, pooling, num_prefix):
    if pooling == "class_token":
        return tokens[:, 0]
    patches = tokens[:, num_prefix:] if num_prefix else tokens
    mean = keras.layers.GlobalAveragePooling1D(name="pooling")(patches)
    if pooling == "mean":
        return mean
    return keras.layers.Concatenate(name="class_token_and_mean")([tokens[:, 0], mean])


def _has_class_token(backbone):
    return any(getattr(layer, "class_token", False) for layer in backbone.layers)


def num_prefix_tokens(backbone: keras.Model) -> int:
    """Number of tokens before the patch tokens."""
    return sum(getattr(layer, "num_prefix_tokens", 0) for layer in backbone.layers)
