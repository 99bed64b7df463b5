"""The convolutional models of DINOv3: transformers' `DINOv3ConvNextModel`."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.images import depthwise_entries, integers, patch_entries, sides
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, linear, norm, same
from keras_transformer.models import ConvNeXt, ConvNeXtSize
from keras_transformer.models.vision.convnext import SIZES

_TINY = SIZES["T"]


class Dinov3ConvNext(Architecture):
    """ConvNeXt, distilled from DINOv3: Siméoni et al., arXiv 2508.10104."""

    def backbone(self, config: Config) -> keras.Model:
        return ConvNeXt(
            ConvNeXtSize(integers(config, "hidden_sizes", _TINY.hidden_dims), _depths(config)),
            sides(config, "image_size", 224),
            num_channels=config.integer("num_channels", 3),
            activation=config.activation(),
            layer_scale=config.number("layer_scale_init_value", 1e-6),
            stochastic_depth=config.number("drop_path_rate", 0.0),
            layer_norm_epsilon=config.number("layer_norm_eps", 1e-6),
            name="dinov3_convnext",
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = norm("layer_norm", "final_norm")
        for stage, depth in enumerate(_depths(config)):
            # The first stage normalizes what it has projected, the others what they project.
            projection, first = (1, 0) if stage else (0, 1)
            entries += patch_entries(f"stages.{stage}.downsample_layers.{projection}", f"stage_{stage}_projection")
            entries += norm(f"stages.{stage}.downsample_layers.{first}", f"stage_{stage}_norm")
            for index in range(depth):
                entries += _block(f"stages.{stage}.layers.{index}", f"stage_{stage}_block_{index}")
        return entries


def _depths(config: Config) -> tuple[int, ...]:
    depths = integers(config, "depths", _TINY.num_layers)
    config.check_depth("depths", sum(depths))
    return depths


def _block(theirs: str, ours: str) -> list[Entry]:
    return [
        *depthwise_entries(f"{theirs}.depthwise_conv", f"{ours}/depthwise"),
        *norm(f"{theirs}.layer_norm", f"{ours}/norm"),
        *linear(f"{theirs}.pointwise_conv1", f"{ours}/hidden"),
        *linear(f"{theirs}.pointwise_conv2", f"{ours}/output"),
        same(f"{theirs}.gamma", f"{ours}/scale"),
    ]
