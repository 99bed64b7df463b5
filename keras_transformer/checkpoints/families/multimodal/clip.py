"""CLIP: transformers\' `CLIPModel`, and each of its towers."""

from __future__ import annotations

import math
from typing import Any

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head, head_of
from keras_transformer.checkpoints.building.images import image_options, patch_entries
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Flat
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, linear, norm, same
from keras_transformer.models import CLIP, CLIPText, CLIPVision, Size

_VISION = {"width": 768, "heads": 12, "intermediate": 3072}
_TEXT = {"width": 512, "heads": 8, "intermediate": 2048}
# In configs from before transformers read the end token; the end is then the token with the highest id.
_UNKNOWN_END = 2


class ClipVision(Architecture):
    """The image tower of CLIP: Radford et al., arXiv 2103.00020."""

    base_prefix = "vision_model."
    ignored = (r"embeddings\.position_ids$",)
    heads = {
        "ModelWithProjection": Head(
            lambda tower, config: _projected(tower, config, "image_projection"),
            lambda config, prefix: linear("visual_projection", "image_projection", bias=False),
        )
    }

    def backbone(self, config: Config) -> keras.Model:
        return vision_tower(config)

    def entries(self, config: Config) -> list[Entry]:
        return [*vision_entries(config), *norm("post_layernorm", "image_norm")]


class ClipText(Architecture):
    """The text tower of CLIP: Radford et al., arXiv 2103.00020."""

    base_prefix = "text_model."
    ignored = (r"embeddings\.position_ids$",)
    heads = {
        "ModelWithProjection": Head(
            lambda tower, config: _projected(tower, config, "text_projection"),
            lambda config, prefix: linear("text_projection", "text_projection", bias=False),
        )
    }

    def backbone(self, config: Config) -> keras.Model:
        return _text(config)

    def entries(self, config: Config) -> list[Entry]:
        return _text_entries(config)


class Clip(Architecture):
    """CLIP: Radford et al., arXiv 2103.00020."""

    ignored = (r"embeddings\.position_ids$",)
    heads = {
        "ImageClassification": Head(
            lambda tower, config: tasks.ImageClassifier(tower, config.num_labels, pooling="mean", activation=None),
            lambda config, prefix: linear("classifier", "logits"),
            ignored=(r"^vision_model\.post_layernorm\.",),
        )
    }

    def backbone(self, config: Config) -> keras.Model:
        vision, width = section(config, "vision_config"), config.integer("projection_dim", 512)
        if _is_classifier(config):
            tower = vision_tower(vision)
            return keras.Model(tower.input, tower.output["tokens"], name=tower.name)
        return CLIP(
            vision=vision_tower(vision, width),
            text=_text(section(config, "text_config"), width),
            initial_temperature=math.exp(-config.number("logit_scale_init_value", 2.6592)),
        )

    def entries(self, config: Config) -> list[Entry]:
        vision = [entry.prefixed("vision_model.") for entry in vision_entries(section(config, "vision_config"))]
        if _is_classifier(config):
            return vision
        return [
            *vision,
            *norm("vision_model.post_layernorm", "image_norm"),
            *(entry.prefixed("text_model.") for entry in _text_entries(section(config, "text_config"))),
            *linear("visual_projection", "image_projection", bias=False),
            *linear("text_projection", "text_projection", bias=False),
            same("logit_scale", "logits/logit_scale"),
        ]


def _is_classifier(config: Config) -> bool:
    """Whether the file has only the image tower."""
    return head_of(config) == "ImageClassification"


def section(config: Config, name: str) -> Config:
    """Returns the settings of a tower; in old configs, a duplicate section takes precedence."""
    found = config.section(name) if name in config else config.within({}, name)
    again = config.get(f"{name}_dict")
    return config.within({**found.values, **again}, name) if isinstance(again, dict) else found


def _num_layers(config: Config, layers: int = 12) -> int:
    num_layers = config.integer("num_hidden_layers", layers)
    config.check_depth("num_hidden_layers", num_layers)
    return num_layers


def tower_size(config: Config, width: int, heads: int, intermediate: int, layers: int = 12) -> Size:
    """Returns the `Size` of a tower; the arguments are the defaults of missing settings."""
    return Size(
        _num_layers(config, layers),
        config.integer("hidden_size", width),
        config.integer("num_attention_heads", heads),
        config.integer("intermediate_size", intermediate),
    )


def _options(config: Config) -> dict[str, Any]:
    return {
        "activation": config.activation(default="quick_gelu"),
        "attention_dropout": config.number("attention_dropout", 0.0),
        "layer_norm_epsilon": config.number("layer_norm_eps", 1e-5),
    }


def vision_tower(
    config: Config, projection_dim: int | None = None, patch_size: int = 32, defaults: dict[str, int] | None = None
) -> keras.Model:
    """Returns the image tower; `patch_size` and `defaults` (as `_VISION`) replace missing settings."""
    images, size = image_options(config, patch_size=patch_size), tower_size(config, **(defaults or _VISION))
    return CLIPVision(size, **images, projection_dim=projection_dim, **_options(config))


def _text(config: Config, projection_dim: int | None = None) -> keras.Model:
    end_id = config.integer("eos_token_id", 49407, minimum=0)
    return CLIPText(
        tower_size(config, **_TEXT),
        config.integer("vocab_size", 49408),
        max_sequence_length=config.integer("max_position_embeddings", 77),
        end_id=None if end_id == _UNKNOWN_END else end_id,
        projection_dim=projection_dim,
        **_options(config),
    )


def _projected(tower: keras.Model, config: Config, name: str) -> keras.Model:
    layer = keras.layers.Dense(config.integer("projection_dim", 512), use_bias=False, name=name)
    outputs = {**tower.output, "embedding": layer(tower.output["pooled"])}
    return keras.Model(tower.input, outputs, name=tower.name)


def vision_entries(config: Config, layers: int = 12) -> list[Entry]:
    """Returns the mapping of the image tower without its final norm; `layers` replaces a missing setting."""
    entries = [
        Entry(("embeddings.class_embedding",), ("patch_embedding/class_embedding",), Flat()),
        same("embeddings.position_embedding.weight", "patch_embedding/position_embeddings"),
        *patch_entries("embeddings.patch_embedding", "patch_embedding/projection", bias=False),
        *norm("pre_layrnorm", "embedding_norm"),
    ]
    return [*entries, *block_entries(config, "encoder_block", layers)]


def _text_entries(config: Config) -> list[Entry]:
    return [
        *embedding("embeddings.token_embedding", "token_embedding"),
        *embedding("embeddings.position_embedding", "position_embedding"),
        *block_entries(config, "decoder_block"),
        *norm("final_layer_norm", "final_norm"),
    ]


def block_entries(config: Config, kind: str, layers: int = 12) -> list[Entry]:
    """Returns the mapping of the blocks of a tower; `kind`: "encoder_block" or "decoder_block"."""
    entries = []
    for index in range(_num_layers(config, layers)):
        theirs, ours = f"encoder.layers.{index}", f"{kind}_{index}"
        entries += [
            *attention(
                f"{ours}/self_attention",
                query=f"{theirs}.self_attn.q_proj",
                key=f"{theirs}.self_attn.k_proj",
                value=f"{theirs}.self_attn.v_proj",
                output=f"{theirs}.self_attn.out_proj",
            ),
            *norm(f"{theirs}.layer_norm1", f"{ours}/mixer_residual/norm"),
            *norm(f"{theirs}.layer_norm2", f"{ours}/feedforward_residual/norm"),
            *linear(f"{theirs}.mlp.fc1", f"{ours}/feedforward/hidden"),
            *linear(f"{theirs}.mlp.fc2", f"{ours}/feedforward/output"),
        ]
    return entries
