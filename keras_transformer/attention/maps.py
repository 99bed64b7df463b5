"""Attention maps of a built model."""

from __future__ import annotations

from collections.abc import Iterable

import keras

from keras_transformer.attention.capture import capture
from keras_transformer.attention.multi_head.multi_head_attention import MultiHeadAttention
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Tensor


def attention_maps(model: keras.Model, layers: Iterable[int | str] | None = None) -> keras.Model:
    """Returns a model that maps the inputs of `model` to the scores of its attention layers, with shared weights.

    Args:
        model: a built `keras.Model` that contains `MultiHeadAttention` layers, at any depth.
        layers: list of names or paths of attention layers or of blocks that contain them, or of indices of attention layers.
            None for all.

    Returns:
        `keras.Model`: inputs of `model` to a dict from layer path to scores `(B, N, T, S)`, in the order of the layers.

    Raises:
        ValueError: the model has no such attention layer. The message lists the paths of its attention layers.

    Example:

    >>> import numpy as np
    >>> from keras_transformer import models
    >>> vit = models.ViT(models.Size(2, 8, 2, 16), patch_size=4, image_size=8)
    >>> maps = attention_maps(vit, layers=[-1])(np.zeros((1, 8, 8, 3)))
    >>> {path: tuple(scores.shape) for path, scores in maps.items()}
    {'encoder_block_1/self_attention': (1, 2, 5, 5)}
    """
    found = {_path(layer): layer for layer in attention_layers(model)}
    if not found:
        raise ValueError(f"Model {model.name!r} has no keras_transformer MultiHeadAttention layer.")
    return _AttentionMaps(model, _choose(found, layers))


@serializable
class _AttentionMaps(keras.Model):
    def __init__(self, model: keras.Model, chosen: dict[str, keras.layers.Layer]) -> None:
        super().__init__(name=f"{model.name}_attention_maps")
        self.model = model
        self.chosen = dict(chosen)

    def call(self, inputs: Tensor) -> dict[str, Tensor | None]:
        with capture(self.chosen.values()) as scores:
            self.model(inputs, training=False)
        return {path: scores[id(layer)] for path, layer in self.chosen.items()}


def attention_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers of a model that record attention scores, in call order."""
    layers = layers_in_order(model)
    return [layer for layer in layers if isinstance(layer, MultiHeadAttention) or _records_scores(layer)]


def _records_scores(layer: keras.layers.Layer) -> bool:
    """Whether a layer other than `MultiHeadAttention` records attention scores."""
    return getattr(layer, "records_attention_scores", False)


def _path(layer: keras.layers.Layer) -> str:
    """The path of a layer inside its model, e.g. `encoder_block_0/self_attention`."""
    return layer.path or layer.name


def _choose(found: dict[str, keras.layers.Layer], layers: Iterable[int | str] | None) -> dict[str, keras.layers.Layer]:
    if layers is None:
        return found
    paths, chosen = list(found), {}
    for wanted in layers:
        if isinstance(wanted, int) and -len(paths) <= wanted < len(paths):
            matches = [paths[wanted]]
        else:
            matches = [path for path in paths if str(wanted) in (path, *path.split("/"))]
        if not matches:
            raise ValueError(f"No attention layer {wanted!r}. Attention layers: {', '.join(paths)}")
        chosen.update({path: found[path] for path in matches})
    return chosen
