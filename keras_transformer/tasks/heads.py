"""Helpers of the heads: checks of backbones, inputs by name, pooling, float32 outputs."""

from __future__ import annotations

import keras

from keras_transformer.audio import ConvolutionSubsampling, FrameMask, SpeechAdapter
from keras_transformer.backend import keras_private
from keras_transformer.tasks.pooling import POOLINGS
from keras_transformer.utils.serialization import resolve
from keras_transformer.utils.types import Activation


def check_backbone(backbone: object) -> None:
    """Raises an error if `backbone` is not a Functional model.

    Raises:
        ValueError: it is another object; the message contains it.
    """
    if not isinstance(backbone, keras.Model) or not getattr(backbone, "inputs", None):
        raise ValueError(
            "backbone must be a Functional keras.Model with output (B, T, D), such as one of keras_transformer.models. "
            f"Received: {backbone!r}"
        )


def input_named(backbone: keras.Model, name: str) -> keras.KerasTensor | None:
    """The symbolic input of `backbone` with this name, or None."""
    check_backbone(backbone)
    return next((tensor for tensor in keras.tree.flatten(backbone.input) if tensor.name == name), None)


def token_mask(backbone: keras.Model) -> keras.KerasTensor | None:
    """The symbolic padding mask of the tokens that `backbone` returns, or None.

    It is the input "padding_mask", unless layers make fewer tokens: frames of recordings, and layers that shorten them.
    """
    check_backbone(backbone)
    for node in reversed(keras_private.nodes_in_order(backbone)):
        if isinstance(node.operation, (ConvolutionSubsampling, FrameMask, SpeechAdapter)):
            return node.output_tensors[-1]
    return input_named(backbone, "padding_mask")


def check_tokens(backbone: keras.Model) -> None:
    """Raises an error if the output of a backbone is not one vector per token.

    Raises:
        ValueError: it is not a Functional model, or its output is not `(B, T, D)`.
    """
    check_backbone(backbone)
    shape = getattr(backbone.output, "shape", ())
    if len(shape) != 3:
        raise ValueError(f"{backbone.name!r} must return tokens (B, T, D). Its output: {backbone.output!r}")


def token_table(backbone: keras.Model, *names: str) -> keras.layers.Layer:
    """Returns the token embedding of a backbone: the first layer with one of these names.

    Raises:
        ValueError: there is none.
    """
    check_backbone(backbone)
    layers = {layer.name: layer for layer in backbone.layers}
    found = next((layers[name] for name in names if name in layers), None)
    if found is None:
        raise ValueError(f"Backbone {backbone.name!r} has no token embedding ({' or '.join(names)}).")
    return found


def check_tied(backbone: keras.Model, table: keras.layers.Layer, width: int) -> None:
    """Raises an error if the token embedding cannot be tied to a head of this width.

    Raises:
        ValueError: it is not reversible, or has another width.
    """
    if not isinstance(table, keras.layers.ReversibleEmbedding):
        raise ValueError(f"{table.name!r} of {backbone.name!r} is not a ReversibleEmbedding: use tie_embeddings=False.")
    if table.output_dim != width:
        raise ValueError(
            f"A tied head needs equal widths: the output of {backbone.name!r} has width {width}, its {table.name!r} has "
            f"width {table.output_dim}. Use tie_embeddings=False otherwise."
        )


def check_count(name: str, value: object) -> None:
    """Raises an error for a number of classes or tags below 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer. Received: {value!r}")


def make_pooling(pooling: str | keras.layers.Layer, name: str = "pooling") -> keras.layers.Layer:
    """The pooling layer from a name in `POOLINGS`, an instance or a config; by name in float32."""
    return resolve(pooling, POOLINGS, keras.layers.Layer, dtype="float32", name=name, argument="pooling")


def output_layer(units: int, activation: Activation, use_bias: bool = True) -> keras.layers.Dense:
    """A dense head in float32, named "probabilities" with softmax or sigmoid, else "logits"."""
    name = "probabilities" if activation in ("softmax", "sigmoid") else "logits"
    return keras.layers.Dense(units, activation=activation, use_bias=use_bias, dtype="float32", name=name)
