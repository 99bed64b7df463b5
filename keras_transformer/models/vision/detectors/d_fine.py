"""D-FINE."""

from __future__ import annotations

from typing import NamedTuple

import keras
from keras import ops

from keras_transformer.attention import MultiScaleDeformableAttention
from keras_transformer.blocks import GatedResidual
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
    FIRST,
    REFINED,
    DecoderBlocks,
    last_maps,
    projected,
    query_positions,
    selected_queries,
)
from keras_transformer.models.vision.hgnet_v2 import HGNetV2
from keras_transformer.utils.serialization import choice, clone
from keras_transformer.utils.types import Activation, Config, Tensor
from keras_transformer.vision import BoxRefinement, DistributionBins, DistributionRefinement

# What the reference keeps the position vectors of queries within.
_LARGEST_POSITION = 10.0


class DFINESize(NamedTuple):
    """Size of D-FINE.

    Attributes:
        hidden_dim: int: width of the object queries.
        num_layers: int: number of blocks of the decoder.
        num_heads: int: number of attention heads of the decoder.
        intermediate_dim: int: hidden width of the feed-forward of the decoder.
        encoder: `HybridEncoderSize`.
        backbone: the name of the `HGNetV2` that is built if no backbone is given.
        learnable_affine: bool: of that backbone.
        curvature: float: of the bins: see `vision.DistributionBins`.

    Example:

    >>> DFINESize(num_layers=3).curvature
    4.0
    """

    hidden_dim: int = 256
    num_layers: int = 6
    num_heads: int = 8
    intermediate_dim: int = 1024
    encoder: HybridEncoderSize = HybridEncoderSize()
    backbone: str = "B4"
    learnable_affine: bool = False
    curvature: float = 4.0


# Peng et al., arXiv 2410.13842, table 1, as in the published configurations.
SIZES = {
    "S": DFINESize(
        num_layers=3, encoder=HybridEncoderSize(expansion=0.5, depth=1), backbone="B0", learnable_affine=True
    ),
    "M": DFINESize(num_layers=4, encoder=HybridEncoderSize(depth=2), backbone="B2", learnable_affine=True),
    "L": DFINESize(),
    "X": DFINESize(encoder=HybridEncoderSize(384, intermediate_dim=2048), backbone="B5", curvature=8.0),
}


def DFINE(
    size: str | DFINESize = "L",
    image_size: int | tuple[int, int] | None = 640,
    *,
    backbone: keras.Model | None = None,
    num_classes: int = 80,
    num_queries: int = 300,
    cross_attention: MultiScaleDeformableAttention | None = None,
    refinement: DistributionRefinement | None = None,
    activation: Activation = "relu",
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    layer_norm_epsilon: float = 1e-5,
    batch_norm_epsilon: float = 1e-5,
    name: str = "d_fine",
) -> keras.Model:
    """D-FINE: RT-DETR whose blocks refine distributions over the edges of the boxes instead of the boxes.

    The first block gives boxes; every block adds to the logits of how far their edges have moved, and estimates the quality
    of what follows. `tasks.ObjectDetector(DFINE(), 80, num_class_layers=1, auxiliary=True)` adds the heads of the classes;
    train it with `training.DetectionLoss(classification="varifocal")`.

    Args:
        size: "S", "M", "L", "X", or a `DFINESize`.
        image_size: int or pair of ints. Pixels; weights are published for 640 x 640. None for images of any size, or with a
            `backbone`, whose it is.
        backbone: `keras.Model` of images with feature maps, of which the last three are read. None for the HGNetV2 of the
            size, with batch norms that do not learn.
        num_classes: int >= 1. The number of classes, for which queries are selected.
        num_queries: int >= 1. Q. The largest number of objects of an image.
        cross_attention: `MultiScaleDeformableAttention` for three levels, to copy for each block; None for one without
            projections, with 3, 6 and 3 points.
        refinement: `vision.DistributionRefinement`, to copy for each block; None for that of the paper.
        activation: of the feed-forward of the decoder.
        dropout: float in [0, 1). Of what attention and feed-forward give, and of the attention weights of the encoder.
        attention_dropout: float in [0, 1). Of the weights of self-attention in the decoder.
        hidden_dropout: float in [0, 1). Of the hidden layer of the feed-forward.
        layer_norm_epsilon: float > 0. Of every layer norm but those behind gates, which have 1e-5.
        batch_norm_epsilon: float > 0. Of the batch norms behind the first projections of feature maps.
        name: str.

    Returns:
        `keras.Model`: "images", float `(B, height, width, channels)`, to {"tokens": the object queries, `(B, Q, D)`,
        "boxes": `(B, Q, 4)`, center, width and height, as shares of the image}. Boxes, logits of distributions and quality
        after each block are the outputs of its layers "refined_boxes_0", "refined_boxes_1" and so on.

    Raises:
        ValueError: unknown size; a backbone without three feature maps that halve in size.

    Left out: queries for denoising, and the losses of distributions (fine-grained localization, self-distillation).

    Example:

    >>> from keras_transformer import models
    >>> backbone = models.ResNet(models.ResNetSize((8, 8, 16, 16), (1, 1, 1, 1), stem_dim=8), image_size=64)
    >>> size = DFINESize(16, 2, 2, 24, models.HybridEncoderSize(8, 1, 2, 24, depth=1))
    >>> DFINE(size, backbone=backbone, num_classes=3, num_queries=5).output["tokens"].shape
    (None, 5, 16)

    Reference: Peng et al., D-FINE: Redefine Regression Task in DETRs as Fine-grained Distribution Refinement, arXiv
    2410.13842.
    """
    size = choice(size, SIZES, argument="size") if isinstance(size, str) else DFINESize(*size)
    base = backbone
    if base is None:
        base = HGNetV2(size.backbone, image_size, learnable_affine=size.learnable_affine, frozen_norm=True)
    rates = {"dropout": dropout, "hidden_dropout": hidden_dropout, "layer_norm_epsilon": layer_norm_epsilon}
    maps = projected(last_maps(base), size.encoder.hidden_dim, "feature_projection")
    maps = fuse(attend_within(maps, size.encoder, **rates), _convolutions(size.encoder, batch_norm_epsilon))
    if size.hidden_dim != size.encoder.hidden_dim:
        maps = projected(maps, size.hidden_dim, "memory_projection", batch_norm_epsilon)
    x, boxes = selected_queries(maps, num_classes, num_queries, layer_norm_epsilon)
    if cross_attention is None:
        cross_attention = MultiScaleDeformableAttention(size.num_heads, (3, 6, 3), use_projections=False)
    refinement = DistributionRefinement() if refinement is None else refinement
    options: Config = {
        "norm": LayerNormalization(epsilon=layer_norm_epsilon),
        "dropout": dropout,
        "cross_residual": GatedResidual(LayerNormalization(epsilon=1e-5)),
    }
    blocks = DecoderBlocks(size, cross_attention, activation, attention_dropout, hidden_dropout, options)
    return keras.Model(base.inputs[0], _refined(x, boxes, maps, blocks, refinement), name=name)


def _refined(
    x: Tensor, boxes: Tensor, maps: list[Tensor], blocks: DecoderBlocks, refinement: DistributionRefinement
) -> dict[str, Tensor]:
    """The object queries and their boxes after all blocks, each of which adds to the logits of the distributions."""
    size = blocks.size
    bins = DistributionBins(refinement.num_bins, size.curvature, dtype="float32", name="distribution_bins")(boxes)
    place = query_positions(size.hidden_dim)
    before = first = logits = None
    refined = boxes
    for index in range(size.num_layers):
        positions = ops.clip(place(boxes), -_LARGEST_POSITION, _LARGEST_POSITION)
        x = blocks.block(index)(x, maps, boxes, positions=positions)
        if first is None:
            first = ops.stop_gradient(BoxRefinement(dtype="float32", name=FIRST)(x, boxes))
        refine = clone(refinement, dtype="float32", name=f"{REFINED}{index}")
        refined, logits, _ = refine(x if before is None else x + before, first, *bins, logits=logits)
        boxes, before = ops.stop_gradient(refined), ops.stop_gradient(x)
    return {"tokens": x, "boxes": refined}


def _convolutions(size: HybridEncoderSize, epsilon: float) -> Convolutions:
    """The steps between feature maps: GELAN stages, and depthwise downsampling."""
    width = size.hidden_dim

    def lateral(x, name):
        return convolution(x, width, epsilon=epsilon, name=name)

    def downsampling(x, name):
        x = convolution(x, width, epsilon=epsilon, name=f"{name}_point")
        return convolution(x, width, 3, 2, depthwise=True, epsilon=epsilon, name=name)

    def fusion(x, name):
        return _gelan(x, size, epsilon, name)

    return Convolutions(lateral, downsampling, fusion)


def _gelan(x: Tensor, size: HybridEncoderSize, epsilon: float, name: str) -> Tensor:
    """A GELAN stage: half of the channels pass two CSP stages, and all that is found on the way is concatenated.

    Reference: Wang et al., YOLOv9, arXiv 2402.13616, section 4.2, as in the published code of D-FINE.
    """
    width = size.hidden_dim
    hidden = round(size.expansion * width // 2)

    def silu(x, filters, kernel_size, part):
        return convolution(x, filters, kernel_size, 1, "silu", epsilon=epsilon, name=f"{name}_{part}")

    x = silu(x, 2 * width, 1, "inputs")
    found = [x[..., :width], x[..., width:]]
    for index in range(2):
        path = f"{name}_branch_{index}"
        y = csp_stage(found[-1], hidden, hidden, size.depth, size.activations[0], epsilon, path)
        found.append(silu(y, hidden, 3, f"branch_{index}"))
    return silu(keras.layers.Concatenate(name=f"{name}_all")(found), width, 1, "output")
