"""Image classification."""

import keras


def ImageClassifier(
    backbone, num_classes, *, pooling="class_token", dropout=0.0, activation="softmax", name="image_classifier"
):
    """A backbone of image tokens with a linear head over one pooled token.

    Args:
        backbone: `keras.Model` from images to tokens `(B, T, D)`, such as `models.ViT`.
        num_classes: int >= 1.
        pooling: "class_token": the first token; "mean": the mean of the patches.
        dropout: float in [0, 1). Of the pooled token.
        activation: "softmax" for probabilities, None for logits.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to "probabilities" or "logits", float32 `(B, num_classes)`, under every dtype
        policy.

    Raises:
        ValueError: unknown pooling, or "class_token" for a backbone without one.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.ViT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8)
    >>> ImageClassifier(backbone, num_classes=10).output_shape
    (None, 10)

    Reference: Dosovitskiy et al., arXiv 2010.11929, section 3.1 and appendix D.3 (mean pooling).
    """
    has_class_token = _has_class_token(backbone)
    if pooling not in ("class_token", "mean"):
        raise ValueError(f"pooling must be 'class_token' or 'mean'. Received: {pooling!r}")
    if pooling == "class_token" and not has_class_token:
        raise ValueError(f"{backbone.name!r} has no class token: use pooling='mean'.")
    tokens = backbone.output
    if pooling == "class_token":
        x = tokens[:, 0]
    else:
        patches = tokens[:, 1:] if has_class_token else tokens
        x = keras.layers.GlobalAveragePooling1D(name="pooling")(patches)
    x = keras.layers.Dropout(dropout, name="head_dropout")(x)
    head = keras.layers.Dense(
        num_classes,
        activation=activation,
        dtype="float32",
        name="probabilities" if activation == "softmax" else "logits",
    )
    return keras.Model(backbone.input, head(x), name=name)


def _has_class_token(backbone):
    return any(getattr(layer, "class_token", False) for layer in backbone.layers)
