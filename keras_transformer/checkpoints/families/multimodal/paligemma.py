"""PaliGemma: transformers' `PaliGemmaModel` and its head."""

from __future__ import annotations

from collections.abc import Mapping

import keras

from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.decoders import gated_decoder_entries, grouped_heads, head_width
from keras_transformer.checkpoints.building.heads import language_model
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.multimodal.sections import find_prefix, section_with_defaults, with_end
from keras_transformer.checkpoints.families.multimodal.siglip import vision_entries, vision_tower
from keras_transformer.checkpoints.families.text.decoders.gemma import HEAD_WIDTH, activation
from keras_transformer.checkpoints.mapping import Entry, linear
from keras_transformer.models import PaliGemma

# Defaults of transformers for the sections of a config, where they differ from those of the kinds themselves.
_VISION = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "patch_size": 14,
    "image_size": 224,
}
_TEXT = {
    "hidden_size": 2048,
    "num_hidden_layers": 18,
    "intermediate_size": 16384,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "vocab_size": 257152,
}


# Names of the parts, of several versions of transformers.
_TOWERS = (
    "vision_tower.vision_model",
    "vision_tower",
    "model.vision_tower.vision_model",
    "model.vision_tower",
)
_PROJECTORS = ("multi_modal_projector.linear", "model.multi_modal_projector.linear")
_DECODERS = ("language_model.model", "language_model", "model.language_model.model", "model.language_model")
_HEADS = ("language_model.lm_head", "lm_head")


class PaliGemmaArchitecture(Architecture):
    """PaliGemma: Beyer et al., arXiv 2407.07726. PaliGemma 2, whose decoder has sliding windows, is not supported."""

    heads = {
        "ConditionalGeneration": Head(
            lambda backbone, config: language_model(backbone, with_end(config, _text(config)), tied=True),
            lambda config, prefix: [] if _is_tied(config) else linear(find_prefix(config, _HEADS), "head", bias=False),
        )
    }
    tied = {f"{name}.weight": tuple(f"{prefix}.embed_tokens.weight" for prefix in _DECODERS) for name in _HEADS}
    ignored = (r"embeddings\.position_ids$",)

    def backbone(self, config: Config) -> keras.Model:
        text, vision = _text(config), _vision(config)
        text.only("model_type", "gemma", "gemma")
        text.only("use_bidirectional_attention", True, True)
        vision.only("model_type", "siglip_vision_model", "siglip_vision_model")
        vision.only("vision_use_head", False, False)
        config.only("projection_dim", text.integer("hidden_size"), text.integer("hidden_size"))
        return PaliGemma(
            model_size(text),
            text.integer("vocab_size"),
            vision_tower(vision),
            image_id=config.integer("image_token_index", 256000, minimum=0),
            **grouped_heads(text, key_dim=HEAD_WIDTH),
            position=rotary(text, head_width(text, HEAD_WIDTH)),
            use_attention_bias=text.flag("attention_bias", False),
            activation=activation(text, "hidden_act"),
            attention_dropout=text.number("attention_dropout", 0.0),
            rms_norm_epsilon=text.number("rms_norm_eps", 1e-6),
        )

    def entries(self, config: Config) -> list[Entry]:
        text = _text(config)
        bias = text.flag("attention_bias", False)
        decoder = gated_decoder_entries(text, bias=bias, output_bias=bias)
        tower = find_prefix(config, _TOWERS, ".post_layernorm")
        return [
            *(entry.prefixed(f"{tower}.") for entry in vision_entries(_vision(config), plain=True)),
            *linear(find_prefix(config, _PROJECTORS), "image_projection"),
            *(entry.prefixed(f"{find_prefix(config, _DECODERS, '.norm')}.") for entry in decoder),
        ]


def _text(config: Config) -> Config:
    return _section(config, "text_config", _TEXT)


def _vision(config: Config) -> Config:
    return _section(config, "vision_config", {**_VISION, "vision_use_head": False})


def _section(config: Config, name: str, defaults: Mapping[str, object]) -> Config:
    section = section_with_defaults(config, name, defaults)
    section.check_depth("num_hidden_layers", section.integer("num_hidden_layers"))
    return section


def _is_tied(config: Config) -> bool:
    return config.flag("tie_word_embeddings", True)
