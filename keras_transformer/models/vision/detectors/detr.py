"""DETR."""

from __future__ import annotations

from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.attention import MultiHeadAttention, PositionedAttention
from keras_transformer.blocks import EncoderBlock, QueryDecoderBlock
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.feature_maps import feature_maps
from keras_transformer.models.vision.resnet import ResNet
from keras_transformer.utils.serialization import choice, clone
from keras_transformer.utils.types import Activation, Config
from keras_transformer.vision import ObjectQueries, ResizeMask, SinePositions


class DETRSize(NamedTuple):
    """Size of the transformer of DETR.

    Attributes:
        hidden_dim: int, a multiple of 4: width of the tokens.
        num_layers: pair of ints: number of blocks of the encoder and of the decoder.
        num_heads: pair of ints: number of attention heads of the encoder and of the decoder.
        intermediate_dims: pair of ints: hidden width of the feed-forward of the encoder and of the decoder.
        backbone: the name of the `ResNet` that is built if no backbone is given.

    Example:

    >>> DETRSize(hidden_dim=128).num_layers
    (6, 6)
    """

    hidden_dim: int = 256
    num_layers: tuple[int, int] = (6, 6)
    num_heads: tuple[int, int] = (8, 8)
    intermediate_dims: tuple[int, int] = (2048, 2048)
    backbone: str = "50"


# Carion et al., arXiv 2005.12872, table 1.
SIZES = {"R50": DETRSize(), "R101": DETRSize(backbone="101")}


def DETR(
    size: str | DETRSize = "R50",
    image_size: int | tuple[int, int] | None = None,
    *,
    backbone: keras.Model | None = None,
    num_queries: int = 100,
    pixel_mask: bool = False,
    activation: Activation = "relu",
    dropout: float = 0.1,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    name: str = "detr",
) -> keras.Model:
    """DETR: a transformer over the pixels of a feature map, whose decoder has a query for each object that it may find.

    `tasks.ObjectDetector(DETR(), num_classes, num_class_layers=1)` adds the heads of the paper; with `auxiliary=True` also
    those of every decoder block, without which the decoder learns slowly. Train it with `training.DetectionLoss`.

    Args:
        size: "R50", "R101", or a `DETRSize`.
        image_size: int or pair of ints. Pixels. None for images of any size. Not with a `backbone`.
        backbone: `keras.Model` of images with feature maps, such as `models.ResNet` or `models.SegFormer`, of which the last
            is read. None for the ResNet of the size, with batch norms that do not learn.
        num_queries: int >= 1. Q. The largest number of objects of an image.
        pixel_mask: bool. Whether the model has an input "pixel_mask", for batches of images of different sizes, which are
            padded: see `vision.ImageProcessor(pad=True)`.
        activation: of the feed-forward.
        dropout: float in [0, 1). Of what attention and feed-forward give, and of the pixels of the feature map.
        attention_dropout: float in [0, 1). Of the attention weights.
        hidden_dropout: float in [0, 1). Of the hidden layer of the feed-forward.
        layer_norm_epsilon: float > 0. Of every layer norm.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, and maybe "pixel_mask", boolean `(B, height, width)`,
        True = a real pixel, to the object queries `(B, Q, D)`.

    Raises:
        ValueError: unknown size; a backbone without feature maps, or together with an `image_size`.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.ResNet(models.ResNetSize((8, 16), (1, 1), stem_dim=8), image_size=32)
    >>> DETR(DETRSize(16, (1, 2), (2, 2), (24, 24)), backbone=backbone, num_queries=5).output_shape
    (None, 5, 16)

    Reference: Carion et al., End-to-End Object Detection with Transformers, arXiv 2005.12872, section 3.2 and appendix A.3.
    """
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else DETRSize(*size)
    if backbone is not None and image_size is not None:
        raise ValueError("image_size is that of the backbone, if one is given.")
    base = ResNet(size.backbone, image_size, frozen_norm=True) if backbone is None else backbone
    features, images = feature_maps(base)[-1], base.inputs[0]
    norm = LayerNormalization(epsilon=layer_norm_epsilon)
    options: Config = {"residual": "post", "norm": norm, "dropout": dropout}
    blocks = _Blocks(size, activation, attention_dropout, hidden_dropout, options)
    inputs, placed, mask = _masked(images, features) if pixel_mask else (images, [features], None)
    positions = SinePositions(size.hidden_dim, name="positions")(*placed)
    x = keras.layers.Dense(size.hidden_dim, name="feature_projection")(features)
    x = keras.layers.Reshape((-1, size.hidden_dim), name="feature_tokens")(x)
    x = Dropout(dropout, name="feature_dropout")(x)
    for index in range(size.num_layers[0]):
        x = blocks.encoder_block(index)(x, positions=positions, padding_mask=mask)
    queries = ObjectQueries(num_queries, name="object_queries")(x)
    memory, x = x, ops.zeros_like(queries)
    of_memory = {"memory_positions": positions, "memory_mask": mask}
    for index in range(size.num_layers[1]):
        x = blocks.decoder_block(index)(x, memory, positions=queries, **of_memory)
    return keras.Model(inputs, clone(norm, name="final_norm")(x), name=name)


def _masked(
    images: keras.KerasTensor, features: keras.KerasTensor
) -> tuple[dict[str, keras.KerasTensor], list[keras.KerasTensor], keras.KerasTensor]:
    """The inputs with a mask of the pixels; the features with their mask, and that mask as one of tokens."""
    pixels = keras.Input(images.shape[1:3], dtype="bool", name="pixel_mask")
    of_features = ResizeMask(name="feature_mask")(pixels, features)
    of_tokens = keras.layers.Reshape((-1,), name="token_mask")(of_features)
    return {"images": images, "pixel_mask": pixels}, [features, of_features], of_tokens


class _Blocks(NamedTuple):
    """What the blocks of the encoder and of the decoder are made of; `options` are those of the blocks."""

    size: DETRSize
    activation: Activation
    attention_dropout: float
    hidden_dropout: float
    options: Config

    def encoder_block(self, index: int) -> EncoderBlock:
        """Returns a new block of the encoder."""
        feedforward = self._feed_forward(0)
        mixer = PositionedAttention(**self._heads(0), name="self_attention")
        return EncoderBlock(mixer, feedforward, **self.options, name=f"encoder_block_{index}")

    def decoder_block(self, index: int) -> QueryDecoderBlock:
        """Returns a new block of the decoder."""
        feedforward = self._feed_forward(1)
        mixer = PositionedAttention(**self._heads(1), name="self_attention")
        cross = MultiHeadAttention(**self._heads(1), name="cross_attention")
        return QueryDecoderBlock(mixer, cross, feedforward, **self.options, name=f"decoder_block_{index}")

    def _heads(self, side: int) -> Config:
        heads = self.size.num_heads[side]
        return {"num_heads": heads, "key_dim": self.size.hidden_dim // heads, "dropout": self.attention_dropout}

    def _feed_forward(self, side: int) -> DenseFeedForward:
        width = self.size.intermediate_dims[side]
        return DenseFeedForward(width, self.activation, self.hidden_dropout, name="feedforward")
