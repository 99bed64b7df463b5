"""ViT and DeiT: transformers' `ViTModel`, `DeiTModel`, and their heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.images import (
    image_options,
    vit_attention,
    vit_entries,
    vit_options,
    vit_size,
)
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, linear, same
from keras_transformer.models import DeiT, ViT

_POOLER = "pooler.dense"


def pooled_class_token(backbone: keras.Model, config: Config) -> keras.Model:
    """Returns the tokens and a dense layer of the first; only the tokens if the file has no such layer, as for DINO."""
    if not _has_pooler(config):
        return backbone
    units, activation = config.integer("pooler_output_size", config.integer("hidden_size", 768)), "tanh"
    if "pooler_act" in config:
        activation = config.activation("pooler_act")
    x = keras.layers.Dense(units, activation=activation, name="pooler")(backbone.output[:, 0])
    return keras.Model(backbone.input, {"tokens": backbone.output, "pooled": x}, name=backbone.name)


def pooler_entries(config: Config, prefix: str) -> list[Entry]:
    """Returns the mapping of `pooled_class_token`."""
    return linear(f"{prefix}{_POOLER}", "pooler") if _has_pooler(config) else []


def _has_pooler(config: Config) -> bool:
    return any(name.endswith(f"{_POOLER}.weight") for name in config.tensors)


class Vit(Architecture):
    """The Vision Transformer: Dosovitskiy et al., arXiv 2010.11929."""

    base_prefix = "vit."
    ignored = (r"embeddings\.mask_token$",)
    heads = {
        "Model": Head(pooled_class_token, pooler_entries),
        "ImageClassification": Head(
            lambda backbone, config: tasks.ImageClassifier(backbone, config.num_labels, activation=None),
            lambda config, prefix: linear("classifier", "logits"),
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        options = {**image_options(config), **vit_options(config), "attention": vit_attention(config)}
        return ViT(vit_size(config), interpolation="bicubic", **options)

    def entries(self, config: Config) -> list[Entry]:
        return vit_entries(config)


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
