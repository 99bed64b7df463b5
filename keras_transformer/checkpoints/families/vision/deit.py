"""DeiT: transformers\' `DeiTModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Head
from keras_transformer.checkpoints.building.images import (
    image_options,
    vit_attention,
    vit_entries,
    vit_options,
    vit_size,
)
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.vision.vit import Vit
from keras_transformer.checkpoints.mapping import Entry, linear, same
from keras_transformer.models import DeiT


class Deit(Vit):
    """DeiT: Touvron et al., arXiv 2012.12877. Models without a distillation token have the `model_type` "vit"."""

    base_prefix = "deit."

    heads = {
        **Vit.heads,
        "ImageClassificationWithTeacher": Head(
            lambda backbone, config: tasks.DistilledImageClassifier(backbone, config.num_labels),
            lambda config, prefix: [
                *linear("cls_classifier", "class_logits"),
                *linear("distillation_classifier", "distillation_logits"),
            ],
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        options = {**image_options(config), **vit_options(config), "attention": vit_attention(config)}
        return DeiT(vit_size(config), **options)

    def entries(self, config: Config) -> list[Entry]:
        token = same("embeddings.distillation_token", "patch_embedding/distillation_embedding")
        return [token, *vit_entries(config)]
