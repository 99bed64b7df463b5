"""SigLIP: transformers' `SiglipModel`, and each of its towers."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head, head_of
from keras_transformer.checkpoints.building.images import image_options, patch_entries
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.multimodal.clip import block_entries, section, tower_size
from keras_transformer.checkpoints.layouts import Expanded, Flat, Fused, Matrix
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, norm, same
from keras_transformer.models import SigLIP, SigLIPText, SigLIPVision

TOWER = {"width": 768, "heads": 12, "intermediate": 3072}
_POSITION_IDS = r"embeddings\.position_ids$"
# The pooling, which a classifier of images does without.
_POOLING = r"^vision_model\.head\."


class SiglipVision(Architecture):
    """The image tower of SigLIP: Zhai et al., arXiv 2303.15343."""

    base_prefix = "vision_model."
    ignored = (_POSITION_IDS,)

    def backbone(self, config: Config) -> keras.Model:
        return vision_tower(config)

    def entries(self, config: Config) -> list[Entry]:
        return vision_entries(config)


class SiglipText(Architecture):
    """The text tower of SigLIP and SigLIP 2: Zhai et al., arXiv 2303.15343."""

    base_prefix = "text_model."
    ignored = (_POSITION_IDS,)

    def backbone(self, config: Config) -> keras.Model:
        return text_tower(config)

    def entries(self, config: Config) -> list[Entry]:
        return text_entries(config)


class Siglip(Architecture):
    """SigLIP: Zhai et al., arXiv 2303.15343; and SigLIP 2 for images of one size: Tschannen et al., arXiv 2502.14786."""

    ignored = (_POSITION_IDS,)
    heads = {
        "ImageClassification": Head(
            lambda tower, config: tasks.ImageClassifier(tower, config.num_labels, pooling="mean", activation=None),
            lambda config, prefix: linear("classifier", "logits"),
            ignored=(_POOLING,),
        )
    }

    def backbone(self, config: Config) -> keras.Model:
        vision = self.vision(section(config, "vision_config"), is_classifier(config))
        if is_classifier(config):
            return vision
        return SigLIP(vision=vision, text=text_tower(section(config, "text_config")))

    def vision(self, config: Config, plain: bool) -> keras.Model:
        """Returns the image tower; `plain`: without its pooling."""
        return vision_tower(config, plain)

    def patches(self, config: Config) -> list[Entry]:
        """Returns the mapping of the patches."""
        return image_patches()

    def entries(self, config: Config) -> list[Entry]:
        vision, plain = section(config, "vision_config"), is_classifier(config)
        entries = [entry.prefixed("vision_model.") for entry in vision_entries(vision, plain, self.patches(vision))]
        if plain:
            return entries
        return [
            *entries,
            *(entry.prefixed("text_model.") for entry in text_entries(section(config, "text_config"))),
            *(Entry((name,), (f"logits/{name}",), Expanded()) for name in ("logit_scale", "logit_bias")),
        ]


def is_classifier(config: Config) -> bool:
    """Whether the file has only the image tower, and a head."""
    return head_of(config) == "ImageClassification"


def tower_options(config: Config) -> dict[str, Any]:
    """Returns the options that the towers share."""
    return {
        "activation": config.activation(default="gelu_pytorch_tanh"),
        "attention_dropout": config.number("attention_dropout", 0.0),
        "layer_norm_epsilon": config.number("layer_norm_eps", 1e-6),
    }


def vision_tower(config: Config, plain: bool = False) -> keras.Model:
    """Returns the image tower; `plain`: without its pooling."""
    use_head = config.flag("vision_use_head", True) and not plain
    return SigLIPVision(
        tower_size(config, **TOWER), **image_options(config), use_head=use_head, **tower_options(config)
    )


def text_tower(config: Config) -> keras.Model:
    """Returns the text tower."""
    return SigLIPText(
        tower_size(config, **TOWER),
        config.integer("vocab_size", 32000),
        max_sequence_length=config.integer("max_position_embeddings", 64),
        projection_dim=config.integer("projection_size", None),
        **tower_options(config),
    )


def image_patches() -> list[Entry]:
    """Returns the mapping of the patches of images of one size."""
    return patch_entries("embeddings.patch_embedding", "patch_embedding/projection")


def vision_entries(config: Config, plain: bool = False, patches: list[Entry] | None = None) -> list[Entry]:
    """Returns the mapping of the image tower; `patches`: that of its patches, if it is not `image_patches`."""
    entries = [
        *(image_patches() if patches is None else patches),
        same("embeddings.position_embedding.weight", "patch_embedding/position_embeddings"),
        *block_entries(config, "image_encoder_block"),
        *norm("post_layernorm", "image_norm"),
    ]
    if plain or not config.flag("vision_use_head", True):
        return entries
    inputs = {kind: tuple(f"pooling/attention/{name}/{kind}" for name in _PROJECTIONS) for kind in ("kernel", "bias")}
    return [
        *entries,
        same("head.probe", "pooling/probe"),
        Entry(("head.attention.in_proj_weight",), inputs["kernel"], Fused(Matrix())),
        Entry(("head.attention.in_proj_bias",), inputs["bias"], Fused(Flat())),
        *linear("head.attention.out_proj", "pooling/attention/attention_output", inputs=2),
        *norm("head.layernorm", "pooling/norm"),
        *linear("head.mlp.fc1", "pooling/feedforward/hidden"),
        *linear("head.mlp.fc2", "pooling/feedforward/output"),
    ]


_PROJECTIONS = ("query", "key", "value")


def text_entries(config: Config) -> list[Entry]:
    """Returns the mapping of the text tower."""
    return [
        *embedding("embeddings.token_embedding", "token_embedding"),
        *embedding("embeddings.position_embedding", "position_embedding"),
        *block_entries(config, "encoder_block"),
        *norm("final_layer_norm", "final_norm"),
        *linear("head", "text_projection"),
    ]
