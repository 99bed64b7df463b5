"""RT-DETR."""

from __future__ import annotations

from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.attention import MultiScaleDeformableAttention
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models.building.convolution import convolution
from keras_transformer.models.vision.detectors.hybrid_encoder import (
    Convolutions,
    HybridEncoderSize,
    attend_within,
    csp_stage,
    fuse,
)
from keras_transformer.models.vision.detectors.refinement import (
    REFINED,
    DecoderBlocks,
    last_maps,
    projected,
    query_positions,
    selected_queries,
)
from keras_transformer.models.vision.resnet import ResNet
from keras_transformer.utils.serialization import choice
from keras_transformer.utils.types import Activation, Config
from keras_transformer.vision import BoxRefinement


class RTDETRSize(NamedTuple):
    """Size of RT-DETR.

    Attributes:
        hidden_dim: int: width of the object queries.
        num_layers: int: number of blocks of the decoder.
        num_heads: int: number of attention heads of the decoder.
        intermediate_dim: int: hidden width of the feed-forward of the decoder.
        encoder: `HybridEncoderSize`.
        backbone: the name of the `ResNet` that is built if no backbone is given.

    Example:

    >>> RTDETRSize(num_layers=3).encoder.hidden_dim
    256
    """

    hidden_dim: int = 256
    num_layers: int = 6
    num_heads: int = 8
    intermediate_dim: int = 1024
    encoder: HybridEncoderSize = HybridEncoderSize()
    backbone: str = "50"


# Zhao et al., arXiv 2304.08069, table 2 and section 5.3, as in the published configurations.
SIZES = {
    "R18": RTDETRSize(num_layers=3, encoder=HybridEncoderSize(expansion=0.5), backbone="18"),
    "R34": RTDETRSize(num_layers=4, encoder=HybridEncoderSize(expansion=0.5), backbone="34"),
    "R50": RTDETRSize(),
    "R101": RTDETRSize(encoder=HybridEncoderSize(384, intermediate_dim=2048), backbone="101"),
}


def RTDETR(
    size: str | RTDETRSize = "R50",
    image_size: int | tuple[int, int] | None = 640,
    *,
    backbone: keras.Model | None = None,
    num_classes: int = 80,
    num_queries: int = 300,
    cross_attention: MultiScaleDeformableAttention | None = None,
    activation: Activation = "relu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    batch_norm_epsilon: float = 1e-5,
    name: str = "rt_detr",
) -> keras.Model:
    """RT-DETR: a detector without postprocessing that is as fast as YOLO; its queries are chosen pixels, not learned.

    A hybrid encoder mixes three feature maps, `vision.QuerySelection` chooses the pixels that start as object queries, and
    every block of the decoder looks at a few points in their boxes and refines these. `tasks.ObjectDetector(RTDETR(), 80,
    num_class_layers=1, auxiliary=True)` adds the heads of the classes; train it with
    `training.DetectionLoss(classification="varifocal")`.

    Args:
        size: "R18", "R34", "R50", "R101", or an `RTDETRSize`.
        image_size: int or pair of ints. Pixels; weights are published for 640 x 640. None for images of any size, or with a
            `backbone`, whose it is.
        backbone: `keras.Model` of images with feature maps, of which the last three are read. None for the ResNet-D of the
            size, with batch norms that do not learn.
        num_classes: int >= 1. The number of classes, for which queries are selected.
        num_queries: int >= 1. Q. The largest number of objects of an image.
        cross_attention: `MultiScaleDeformableAttention` for three levels, to copy for each block; None for 4 points in each.
        activation: of the feed-forward of the decoder.
        dropout: float in [0, 1). Of what attention and feed-forward give, and of the attention weights of the encoder.
        attention_dropout: float in [0, 1). Of the weights of self-attention in the decoder.
        hidden_dropout: float in [0, 1). Of the hidden layer of the feed-forward.
        layer_norm_epsilon: float > 0. Of every layer norm.
        batch_norm_epsilon: float > 0. Of the batch norms behind the first projections of feature maps.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to {"tokens": the object queries, `(B, Q, D)`,
        "boxes": `(B, Q, 4)`, center, width and height, as shares of the image}. The boxes after each block are the outputs
        of its layers "refined_boxes_0", "refined_boxes_1" and so on.

    Raises:
        ValueError: unknown size; a backbone without three feature maps that halve in size.

    Queries for denoising, which speed up training, are left out. Published code takes multiples of 32 pixels only; here, the
    pixels of a map that is enlarged beyond the next larger one are cropped.

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.ResNet(models.ResNetSize((8, 8, 16, 16), (1, 1, 1, 1), stem_dim=8), image_size=64, variant="d")
    >>> size = RTDETRSize(16, 2, 2, 24, models.HybridEncoderSize(8, 1, 2, 24, depth=1))
    >>> RTDETR(size, backbone=backbone, num_classes=3, num_queries=5).output["tokens"].shape
    (None, 5, 16)

    Reference: Zhao et al., DETRs Beat YOLOs on Real-time Object Detection, arXiv 2304.08069, section 4.
    """
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else RTDETRSize(*size)
    base = ResNet(size.backbone, image_size, variant="d", frozen_norm=True) if backbone is None else backbone
    maps = projected(last_maps(base), size.encoder.hidden_dim, "feature_projection")
    rates = {"dropout": dropout, "hidden_dropout": hidden_dropout, "layer_norm_epsilon": layer_norm_epsilon}
    maps = fuse(attend_within(maps, size.encoder, **rates), _convolutions(size.encoder, batch_norm_epsilon))
    maps = projected(maps, size.hidden_dim, "memory_projection", batch_norm_epsilon)
    x, boxes = selected_queries(maps, num_classes, num_queries, layer_norm_epsilon)
    if cross_attention is None:
        cross_attention = MultiScaleDeformableAttention(size.num_heads, num_levels=len(maps))
    place = query_positions(size.hidden_dim)
    options: Config = {"norm": LayerNormalization(epsilon=layer_norm_epsilon), "dropout": dropout}
    blocks = DecoderBlocks(size, cross_attention, activation, attention_dropout, hidden_dropout, options)
    refined = boxes
    for index in range(size.num_layers):
        x = blocks.block(index)(x, maps, boxes, positions=place(boxes))
        refined = BoxRefinement(dtype="float32", name=f"{REFINED}{index}")(x, boxes)
        boxes = ops.stop_gradient(refined)
    return keras.Model(base.inputs[0], {"tokens": x, "boxes": refined}, name=name)


def _convolutions(size: HybridEncoderSize, epsilon: float) -> Convolutions:
    """The steps between feature maps: CSP stages, and downsampling by convolutions."""
    width, activation = size.hidden_dim, size.activations[0]
    hidden = int(width * size.expansion)

    def lateral(x, name):
        return convolution(x, width, 1, 1, activation, epsilon=epsilon, name=name)

    def downsampling(x, name):
        return convolution(x, width, 3, 2, activation, epsilon=epsilon, name=name)

    def fusion(x, name):
        return csp_stage(x, width, hidden, size.depth, activation, epsilon, name)

    return Convolutions(lateral, downsampling, fusion)
