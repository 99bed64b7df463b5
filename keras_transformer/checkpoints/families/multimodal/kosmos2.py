"""Kosmos-2: transformers\' `Kosmos2Model` and its head."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.multimodal.clip import vision_entries, vision_tower
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, linear, norm, same
from keras_transformer.models import Kosmos2, Size, kosmos2_vision

_VISION = {"width": 1024, "heads": 16, "intermediate": 4096, "layers": 24}
# The id of "<image>", which is in no setting: 64,002 tokens of text precede the markers.
_BEGIN_IMAGE = 64003


def _language_model(backbone: keras.Model, config: Config) -> keras.Model:
    end_id = _section(config, "text_config").tokens("eos_token_id")
    return tasks.LanguageModel(backbone, tie_embeddings=_is_tied(config), end_id=end_id)


def _language_head(config: Config, prefix: str) -> list[Entry]:
    return [] if _is_tied(config) else linear("text_model.lm_head", "head", bias=False)


def _is_tied(config: Config) -> bool:
    return config.flag("tie_word_embeddings", True)


class Kosmos2Architecture(Architecture):
    """Kosmos-2: Peng et al., arXiv 2306.14824."""

    heads = {"ConditionalGeneration": Head(_language_model, _language_head)}
    ignored = (r"embeddings\.position_ids$", r"embed_positions\.weights$")
    tied = {"text_model.lm_head.weight": "text_model.model.embed_tokens.weight"}

    def backbone(self, config: Config) -> keras.Model:
        text = _section(config, "text_config")
        text.only("add_cross_attention", False)
        size = Size(
            _num_layers(text),
            text.integer("embed_dim", 2048),
            text.integer("attention_heads", 32),
            text.integer("ffn_dim", 8192),
        )
        # transformers' positions start after that of the padding token.
        text.only("pad_token_id", 1)
        return Kosmos2(
            size,
            text.integer("vocab_size", 65037),
            vision=kosmos2_vision(vision_tower(_section(config, "vision_config"), patch_size=14, defaults=_VISION)),
            begin_image_id=config.integer("boi_token_index", _BEGIN_IMAGE, minimum=0),
            num_image_tokens=config.integer("latent_query_num", 64),
            activation=text.activation("activation_function"),
            dropout=text.number("dropout", 0.1),
            attention_dropout=text.number("attention_dropout", 0.1),
            hidden_dropout=text.number("activation_dropout", 0.0),
            scale_embeddings=text.flag("scale_embedding", True),
            layer_norm_epsilon=text.number("layer_norm_eps", 1e-5),
        )

    def entries(self, config: Config) -> list[Entry]:
        vision = _section(config, "vision_config")
        tower = [*vision_entries(vision, _VISION["layers"]), *norm("post_layernorm", "image_norm")]
        text = _text_entries(_section(config, "text_config"))
        return [
            *(entry.prefixed("vision_model.model.") for entry in tower),
            *(entry.prefixed("text_model.model.") for entry in text),
            *linear("image_to_text_projection.dense", "image_projection"),
            same("image_to_text_projection.latent_query", "resampler/queries"),
            *_attention("image_to_text_projection.x_attn", "resampler/attention"),
        ]


def _section(config: Config, name: str) -> Config:
    return config.section(name) if name in config else config.within({}, name)


def _num_layers(text: Config) -> int:
    num_layers = text.integer("layers", 24)
    text.check_depth("layers", num_layers)
    return num_layers


def _text_entries(text: Config) -> list[Entry]:
    entries = embedding("embed_tokens", "token_embedding")
    for index in range(_num_layers(text)):
        theirs, ours = f"layers.{index}", f"decoder_block_{index}"
        entries += [
            *_attention(f"{theirs}.self_attn", f"{ours}/self_attention"),
            *norm(f"{theirs}.self_attn.inner_attn_ln", f"{ours}/self_attention/context_norm"),
            *norm(f"{theirs}.self_attn_layer_norm", f"{ours}/mixer_residual/norm"),
            *linear(f"{theirs}.ffn.fc1", f"{ours}/feedforward/hidden"),
            *norm(f"{theirs}.ffn.ffn_layernorm", f"{ours}/feedforward/hidden_norm"),
            *linear(f"{theirs}.ffn.fc2", f"{ours}/feedforward/output"),
            *norm(f"{theirs}.final_layer_norm", f"{ours}/feedforward_residual/norm"),
        ]
    return [*entries, *norm("layer_norm", "final_norm")]


def _attention(theirs: str, ours: str) -> list[Entry]:
    query, key, value = (f"{theirs}.{letter}_proj" for letter in "qkv")
    return attention(ours, query=query, key=key, value=value, output=f"{theirs}.out_proj")
