"""SigLIP 2 for images of any size and shape: transformers' `Siglip2Model`, and its image tower."""

from __future__ import annotations

import math

import keras

from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.images import sides
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.multimodal.clip import tower_size
from keras_transformer.checkpoints.families.multimodal.siglip import (
    TOWER,
    Siglip,
    tower_options,
    vision_entries,
)
from keras_transformer.checkpoints.mapping import Entry, linear
from keras_transformer.models import SigLIP2Vision
from keras_transformer.tasks.heads import input_named, make_pooling, output_layer


class Siglip2Vision(Architecture):
    """The image tower of SigLIP 2: Tschannen et al., arXiv 2502.14786, section 2.4.2."""

    base_prefix = "vision_model."

    def backbone(self, config: Config) -> keras.Model:
        return _vision_tower(config)

    def entries(self, config: Config) -> list[Entry]:
        return vision_entries(config, patches=_patches())


class Siglip2(Siglip):
    """SigLIP 2: Tschannen et al., arXiv 2502.14786, for images of any size and shape (NaFlex).

    The published checkpoints for images of one size have the `model_type` "siglip".
    """

    remark = "NaFlex; those for images of one size are `siglip`"
    heads = {
        "ImageClassification": Head(
            lambda tower, config: _classifier(tower, config),
            lambda config, prefix: linear("classifier", "logits"),
            ignored=Siglip.heads["ImageClassification"].ignored,
        )
    }

    def vision(self, config: Config, plain: bool) -> keras.Model:
        return _vision_tower(config, plain)

    def patches(self, config: Config) -> list[Entry]:
        return _patches()


def _vision_tower(config: Config, plain: bool = False) -> keras.Model:
    count = config.integer("num_patches", 256)
    if math.isqrt(count) ** 2 != count:
        config.only("num_patches", "the square of the side of the position table")
    return SigLIP2Vision(
        tower_size(config, **TOWER),
        sides(config, "patch_size", 16),
        num_channels=config.integer("num_channels", 3),
        grid_size=math.isqrt(count),
        use_head=config.flag("vision_use_head", True) and not plain,
        **tower_options(config),
    )


def _patches() -> list[Entry]:
    return linear("embeddings.patch_embedding", "patch_embedding/projection")


def _classifier(tower: keras.Model, config: Config) -> keras.Model:
    """Returns the classifier of the mean of the real patches."""
    x = make_pooling("mean")(tower.output, padding_mask=input_named(tower, "patch_mask"))
    return keras.Model(tower.input, output_layer(config.num_labels, None)(x), name="image_classifier")
