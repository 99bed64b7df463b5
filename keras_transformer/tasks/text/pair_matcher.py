"""Matching of pairs of texts with a bi-encoder."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.layers.dropout import Dropout
from keras_transformer.tasks.heads import check_count, check_tokens, input_named, make_pooling, output_layer
from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Activation, Tensor


def PairMatcher(
    backbone: keras.Model,
    num_classes: int | None = None,
    *,
    pooling: str | keras.layers.Layer = "mean",
    dropout: float = 0.0,
    activation: Activation = "softmax",
    name: str = "pair_matcher",
) -> keras.Model:
    """Bi-encoder: one backbone encodes each text separately, and the two vectors are compared.

    With vectors u and v: `softmax(W [u, v, |u - v|, u * v] + b)`, or, without classes, the cosine `u . v / (|u| |v|)`.

    Args:
        backbone: `keras.Model` to tokens `(B, T, D)`, such as `models.Encoder`; both texts share its weights.
        num_classes: int >= 1, or None for the cosine.
        pooling: "first", "last", "mean", "max", "attention", or a layer called with `(tokens, padding_mask=...)`.
        dropout: float in [0, 1). Of u and v; with `num_classes` only.
        activation: "softmax", "sigmoid", or None for logits; with `num_classes` only.
        name: str.

    Returns:
        `keras.Model`: two inputs for each input of the backbone, such as "first_token_ids" and "second_token_ids", to
        "probabilities" or "logits", float32 `(B, num_classes)`, or to "similarity", float32 `(B,)` in [-1, 1]; under every
        dtype policy. The vectors are the outputs of its layer "pooling".

    Raises:
        ValueError: unknown pooling, `num_classes` below 1, or a backbone whose output is not `(B, T, D)`.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.Encoder(models.Size(1, 8, 2, 16), vocabulary_size=50)
    >>> matcher = PairMatcher(backbone, num_classes=3)
    >>> sorted(matcher.input)
    ['first_padding_mask', 'first_token_ids', 'second_padding_mask', 'second_token_ids']

    Reference: Reimers and Gurevych, Sentence-BERT, arXiv 1908.10084, section 3; the features of the classifier with the
    product u * v, as Conneau et al., InferSent, arXiv 1705.02364, section 3.1.
    """
    check_tokens(backbone)
    if num_classes is not None:
        check_count("num_classes", num_classes)
    pool = make_pooling(pooling)
    inputs: dict[str, keras.KerasTensor] = {}
    vectors = []
    for side in ("first", "second"):
        own = {tensor.name: _side_input(tensor, side) for tensor in keras.tree.flatten(backbone.input)}
        inputs |= {tensor.name: tensor for tensor in own.values()}
        structure = keras.tree.map_structure(lambda tensor, own=own: own[tensor.name], backbone.input)
        has_mask = input_named(backbone, "padding_mask") is not None
        vectors.append(pool(backbone(structure), padding_mask=own["padding_mask"] if has_mask else None))
    if num_classes is None:
        return TaskModel(inputs, CosineSimilarity(dtype="float32", name="similarity")(vectors), name=name)
    vectors = [
        Dropout(dropout, dtype="float32", name=f"{side}_dropout")(vector)
        for side, vector in zip(("first", "second"), vectors, strict=True)
    ]
    features = PairFeatures(dtype="float32", name="features")(vectors)
    return TaskModel(inputs, output_layer(num_classes, activation)(features), name=name)


def _side_input(tensor, side):
    return keras.Input(tensor.shape[1:], dtype=tensor.dtype, name=f"{side}_{tensor.name}")


@serializable
class PairFeatures(keras.layers.Layer):
    """Concatenates `[u, v, |u - v|, u * v]` of two vectors.

    Call arguments:
        inputs: two float tensors `(B, D)`.

    Returns:
        `(B, 4 D)`.
    """

    def call(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        u, v = inputs
        return ops.concatenate([u, v, ops.abs(u - v), u * v], axis=-1)


@serializable
class CosineSimilarity(keras.layers.Layer):
    """Cosine similarity of two vectors, `u . v / (|u| |v|)`; 0 if one of them is zero.

    Call arguments:
        inputs: two float tensors `(B, D)`.

    Returns:
        `(B,)`.
    """

    def call(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        u, v = (x / ops.sqrt(ops.maximum(ops.sum(x * x, axis=-1, keepdims=True), 1e-12)) for x in inputs)
        return ops.sum(u * v, axis=-1)
