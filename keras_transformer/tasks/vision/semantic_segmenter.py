"""Semantic segmentation."""

from __future__ import annotations

import keras

from keras_transformer.models.building.feature_maps import feature_maps
from keras_transformer.tasks.heads import check_backbone, check_count
from keras_transformer.tasks.vision.segmentation_model import SegmentationModel
from keras_transformer.vision import ResizeLike


def SemanticSegmenter(
    backbone: keras.Model,
    num_classes: int,
    *,
    hidden_dim: int = 256,
    dropout: float = 0.1,
    name: str = "semantic_segmenter",
) -> SegmentationModel:
    """Semantic segmenter: SegFormer's all-MLP head, which gives each pixel of the largest feature map a class.

        logits = relu(norm(sum_i resize((x_i P_i + b_i) F_i))) W + b

    Train it with `keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=255)`, with labels of any size:
    see `vision.mask_targets`. `keras.metrics.MeanIoU(num_classes, ignore_class=255, sparse_y_pred=False)` is the mean
    intersection over union. `segment` gives each pixel of images a class; `with_masks` puts that into exported files.

    Args:
        backbone: `keras.Model` of images with feature maps, such as `models.SegFormer`.
        num_classes: int >= 1.
        hidden_dim: int >= 1. Channels of the head. Those of SegFormer have 256 for B0 and B1, 768 for the others.
        dropout: float in [0, 1). Before the logits, of whole channels.
        name: str.

    Returns:
        `SegmentationModel`: the backbone's inputs to logits `(B, rows, columns, num_classes)`, float32 under every dtype
        policy, in the size of the largest feature map: a quarter of the image's.

    Raises:
        ValueError: a number below 1; a backbone without feature maps.

    Example:

    >>> from keras_transformer import models
    >>> size = models.SegFormerSize((8, 12), (1, 1), (1, 2), (7, 3), (4, 2), (2, 1), (2, 2))
    >>> SemanticSegmenter(models.SegFormer(size, image_size=32), num_classes=5, hidden_dim=16).output_shape
    (None, 8, 8, 5)

    Reference: Xie et al., SegFormer, arXiv 2105.15203, section 3.2 and equation 4; batch norm and ReLU as in the published
    code. The 1 x 1 convolution F comes before resizing, for which it makes no difference but in cost: both are linear.
    """
    check_backbone(backbone)
    for label, count in (("num_classes", num_classes), ("hidden_dim", hidden_dim)):
        check_count(label, count)
    maps = feature_maps(backbone)
    parts = []
    for stage, x in enumerate(maps):
        x = keras.layers.Dense(hidden_dim, name=f"head_projection_{stage}")(x)
        x = keras.layers.Dense(hidden_dim, use_bias=False, name=f"head_fusion_{stage}")(x)
        parts.append(ResizeLike(name=f"head_resizing_{stage}")(x, maps[0]) if stage else x)
    x = keras.layers.Add(name="head_sum")(parts) if len(parts) > 1 else parts[0]
    x = keras.layers.BatchNormalization(epsilon=1e-5, momentum=0.9, name="head_norm")(x)
    x = keras.layers.ReLU(name="head_activation")(x)
    x = keras.layers.SpatialDropout2D(dropout, data_format="channels_last", name="head_dropout")(x)
    logits = keras.layers.Dense(num_classes, dtype="float32", name="logits")(x)
    return SegmentationModel(backbone.input, logits, name=name)
