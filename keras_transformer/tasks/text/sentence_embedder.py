"""Sentence embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from keras_transformer.tasks.heads import check_tokens, input_named, make_pooling
from keras_transformer.tasks.task_model import TaskModel


def SentenceEmbedder(
    backbone: keras.Model,
    *,
    pooling: str | keras.layers.Layer = "mean",
    normalize: bool = True,
    dense: Sequence[keras.layers.Dense] = (),
    name: str = "sentence_embedder",
) -> keras.Model:
    """Sentence embedder: `v = dense(pool(tokens))`, and `v / |v|` with `normalize`.

    `PairMatcher` trains a backbone for such vectors.

    Args:
        backbone: `keras.Model` to tokens `(B, T, D)`, such as `models.BERT`. Its layers are used, not copied.
        pooling: "first", "mean", "max", "attention", a layer called with `(tokens, padding_mask=...)`, or a list of these,
            whose vectors are concatenated.
        normalize: bool. Whether every vector has length 1, so that a dot product is a cosine.
        dense: `keras.layers.Dense` layers between pooling and norm, in this order; used, not copied. Default none.
        name: str.

    Returns:
        `keras.Model`: the backbone's inputs to "embedding", float32 `(B, D)`, under every dtype policy; `(B, n D)` with n
        poolings, or the width of the last of `dense`.

    Raises:
        ValueError: unknown pooling, an empty list, or a backbone whose output is not `(B, T, D)`.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=50)
    >>> SentenceEmbedder(backbone, pooling=["first", "mean"]).output_shape
    (None, 16)

    Reference: Reimers and Gurevych, Sentence-BERT, arXiv 1908.10084, section 3.
    """
    check_tokens(backbone)
    poolings = pooling if isinstance(pooling, (list, tuple)) else [pooling]
    if not poolings:
        raise ValueError("A sentence embedder needs at least one pooling.")
    mask = input_named(backbone, "padding_mask")
    names = ["pooling", *(f"pooling_{index}" for index in range(1, len(poolings)))]
    layers = [make_pooling(pooling, name) for pooling, name in zip(poolings, names, strict=True)]
    vectors = [layer(backbone.output, padding_mask=mask) for layer in layers]
    x = vectors[0] if len(vectors) == 1 else keras.layers.Concatenate(dtype="float32", name="poolings")(vectors)
    for layer in dense:
        x = layer(x)
    last = keras.layers.UnitNormalization if normalize else keras.layers.Identity
    return TaskModel(backbone.input, last(dtype="float32", name="embedding")(x), name=name)
