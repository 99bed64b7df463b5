"""Image models at another image size."""

from __future__ import annotations

import keras

from keras_transformer.models.building.feature_maps import PREFIX
from keras_transformer.models.building.image_stack import image_sides
from keras_transformer.vision import ConvNeXtBlock, PatchEmbedding

# Attributes of a model besides its weights.
_COMPANIONS = ("checkpoint", "processor", "tokenizer")


def with_image_size(model: keras.Model, image_size: int | tuple[int, int] | None) -> keras.Model:
    """The same model with shared weights at another image size, with resized position embeddings.

    DINOv2, whose weights are for 518 x 518 pixels, is mostly used at 224 x 224. Models with relative positions, such as
    `models.Swin`, must be built at the new size; copy their weights with `set_weights`.

    Args:
        model: `keras.Model` with an input "images" and a `vision.PatchEmbedding`, such as `models.ViT`, or a
            `models.ConvNeXt`, `models.SegFormer`, `models.ResNet` or `models.DETR`, with or without a head.
        image_size: int or pair of ints, a multiple of the patch size. Pixels. None for images of any size, which models
            without a position table support, such as `models.DINOv3` and `models.ConvNeXt`, and `models.YOLOS`.

    Returns:
        `keras.Model`, with the weights of `model`: training one trains both.

    Raises:
        ValueError: no such input or layer; an image that does not divide into patches; any size, with a position table.

    Example:

    >>> from keras_transformer import models
    >>> model = models.ViT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8)
    >>> with_image_size(model, 16).output_shape
    (None, 17, 8)

    Reference: Dosovitskiy et al., arXiv 2010.11929, section 3.2.
    """
    names = [tensor.name for tensor in keras.tree.flatten(model.input)]
    if "images" not in names or not any(map(_is_resizable, model.layers)):
        raise ValueError(f"{model.name!r} has no input 'images', or no PatchEmbedding whose positions can be resized.")

    def replace(tensor):
        shape = tensor.shape[1:]
        shape = (*image_sides(image_size), shape[-1]) if tensor.name == "images" else shape
        return keras.Input(shape, dtype=tensor.dtype, name=tensor.name)

    inputs = keras.tree.map_structure(replace, model.input)
    resized = keras.models.clone_model(model, input_tensors=inputs, clone_function=lambda layer: layer)
    for name in _COMPANIONS:
        if hasattr(model, name):
            setattr(resized, name, getattr(model, name))
    return resized


def _is_resizable(layer):
    """Whether a model with this layer takes images of several sizes."""
    return isinstance(layer, (ConvNeXtBlock, PatchEmbedding)) or layer.name.startswith(PREFIX)
