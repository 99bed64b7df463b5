"""Image classification with a class token and a distillation token."""

from __future__ import annotations

import keras

from keras_transformer.layers.dropout import Dropout
from keras_transformer.tasks.heads import check_count, check_tokens
from keras_transformer.tasks.task_model import TaskModel


def DistilledImageClassifier(
    backbone: keras.Model, num_classes: int, *, dropout: float = 0.0, name: str = "distilled_image_classifier"
) -> keras.Model:
    """Image classifier with a head on the class token and one on the distillation token, whose logits are averaged.

    Train the class head on labels and the distillation head on the predictions of a teacher:
    `compile(loss={"class_logits": ..., "distillation_logits": ...})`.

    Args:
        backbone: `keras.Model` from images to tokens `(B, T, D)`, such as `models.DeiT`.
        num_classes: int >= 1.
        dropout: float in [0, 1). Of both tokens.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to {"logits", "class_logits", "distillation_logits"}, float32
        `(B, num_classes)` each, under every dtype policy.

    Raises:
        ValueError: `num_classes` below 1, or a backbone without a distillation token.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.DeiT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8)
    >>> sorted(DistilledImageClassifier(backbone, num_classes=10).output)
    ['class_logits', 'distillation_logits', 'logits']

    Reference: Touvron et al., DeiT, arXiv 2012.12877, section 4; there probabilities are averaged, here logits, as in its
    published code.
    """
    check_tokens(backbone)
    check_count("num_classes", num_classes)
    if not any(getattr(layer, "distillation_token", False) for layer in backbone.layers):
        raise ValueError(f"{backbone.name!r} has no distillation token: use tasks.ImageClassifier.")
    logits = {}
    for index, token in enumerate(("class", "distillation")):
        x = Dropout(dropout, name=f"{token}_dropout")(backbone.output[:, index])
        logits[f"{token}_logits"] = keras.layers.Dense(num_classes, dtype="float32", name=f"{token}_logits")(x)
    mean = keras.layers.Average(dtype="float32", name="logits")(list(logits.values()))
    return TaskModel(backbone.input, {"logits": mean, **logits}, name=name)
