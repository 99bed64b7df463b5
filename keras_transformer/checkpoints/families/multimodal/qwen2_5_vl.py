"""Qwen2.5-VL: transformers' `Qwen2_5_VLModel` and its head."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.decoders import (
    decoder_options,
    gated_decoder_entries,
    gated_feedforward_entries,
)
from keras_transformer.checkpoints.building.heads import language_model
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import multimodal_rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.multimodal.sections import find_prefix, section_with_defaults, with_end
from keras_transformer.checkpoints.families.text.llama_like.qwen import windows
from keras_transformer.checkpoints.layouts import PatchConvolution
from keras_transformer.checkpoints.mapping import Entry, fused_linear, linear, rms_norm
from keras_transformer.models import Qwen2_5VL, Qwen2_5VLVision, Size

# Defaults of transformers for the sections of a config.
_VISION = {
    "depth": 32,
    "hidden_size": 3584,
    "intermediate_size": 3420,
    "num_heads": 16,
    "in_channels": 3,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "window_size": 112,
    "out_hidden_size": 3584,
    "fullatt_block_indexes": [7, 15, 23, 31],
}
_TEXT = {
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "intermediate_size": 29568,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 152064,
    "max_window_layers": 80,
    "eos_token_id": 151645,
}
_SECTIONS, _THETA = (16, 24, 24), 1e6
# Names of the parts, of several versions of transformers.
_TOWERS = ("visual", "model.visual")
_DECODERS = ("model", "language_model", "model.language_model")


class Qwen2_5VLArchitecture(Architecture):
    """Qwen2.5-VL: Bai et al., arXiv 2502.13923, for text and still images."""

    remark = "still images"
    heads = {
        "ConditionalGeneration": Head(
            lambda backbone, config: language_model(backbone, _of_head(config)),
            lambda config, prefix: [] if _is_tied(config) else linear("lm_head", "head", bias=False),
        )
    }
    tied = {"lm_head.weight": tuple(f"{prefix}.embed_tokens.weight" for prefix in _DECODERS)}

    def backbone(self, config: Config) -> keras.Model:
        text = _text(config)
        width = text.integer("hidden_size") // text.integer("num_attention_heads")
        text.only("head_dim", width, width)
        return Qwen2_5VL(
            model_size(text),
            text.integer("vocab_size"),
            _tower(_vision(config), text.integer("hidden_size")),
            image_id=config.integer("image_token_id", 151655, minimum=0),
            num_key_value_heads=text.integer("num_key_value_heads"),
            window=windows(text),
            position=multimodal_rotary(text, width, _THETA, _SECTIONS),
            **decoder_options(text, rms_norm_epsilon=1e-5),
        )

    def entries(self, config: Config) -> list[Entry]:
        tower, decoder = (
            find_prefix(config, names, ending)
            for names, ending in ((_TOWERS, ".merger.ln_q"), (_DECODERS, ".embed_tokens"))
        )
        return [
            *(entry.prefixed(f"{tower}.") for entry in _tower_entries(_vision(config))),
            *(entry.prefixed(f"{decoder}.") for entry in gated_decoder_entries(_text(config), bias=True)),
        ]


def _tower(config: Config, output_dim: int) -> keras.Model:
    config.only("out_hidden_size", output_dim)
    _check_rotary(config)
    patch, merge = config.integer("patch_size"), config.integer("spatial_merge_size")
    config.integer("window_size", minimum=patch * merge)
    return Qwen2_5VLVision(
        _tower_size(config),
        output_dim,
        patch_dim=config.integer("in_channels") * config.integer("temporal_patch_size") * patch**2,
        merge_size=merge,
        window_size=config.integer("window_size") // merge // patch,
        full_attention_blocks=_full_attention_blocks(config),
        activation=config.activation(default="silu"),
        max_wavelength=_rotary_section(config).number("rope_theta", 10000.0),
    )


def _tower_size(config: Config) -> Size:
    return Size(*(config.integer(name) for name in ("depth", "hidden_size", "num_heads", "intermediate_size")))


def _full_attention_blocks(config: Config) -> list[int]:
    found, depth = config.get("fullatt_block_indexes"), config.integer("depth")
    if not isinstance(found, list) or not all(type(each) is int for each in found):
        config.only("fullatt_block_indexes", "a list of blocks")
    # Those beyond the last block do nothing, as in transformers.
    return [index for index in found if 0 <= index < depth]


def _rotary_section(config: Config) -> Config:
    return config.section("rope_parameters") if "rope_parameters" in config else config.within({}, "rope_parameters")


def _check_rotary(config: Config) -> None:
    width = config.integer("hidden_size") // config.integer("num_heads")
    config.only("head_dim", width, width)
    _rotary_section(config).only("rope_type", "axial", "axial")


def _tower_entries(config: Config) -> list[Entry]:
    patch = config.integer("patch_size")
    shape = (config.integer("in_channels"), config.integer("temporal_patch_size"), patch, patch)
    entries = [
        Entry(("patch_embed.proj.weight",), ("patch_embedding/kernel",), PatchConvolution(shape)),
        *rms_norm("merger.ln_q", "merger_norm"),
        *linear("merger.mlp.0", "merger_hidden"),
        *linear("merger.mlp.2", "merger_output"),
    ]
    for index in range(config.integer("depth")):
        theirs, ours = f"blocks.{index}", f"image_encoder_block_{index}"
        attention = f"{ours}/self_attention"
        entries += [
            *fused_linear(f"{theirs}.attn.qkv", [f"{attention}/{name}" for name in ("query", "key", "value")]),
            *linear(f"{theirs}.attn.proj", f"{attention}/attention_output", inputs=2),
            *gated_feedforward_entries(theirs, ours, bias=True),
            *rms_norm(f"{theirs}.norm1", f"{ours}/mixer_residual/norm"),
            *rms_norm(f"{theirs}.norm2", f"{ours}/feedforward_residual/norm"),
        ]
    return entries


def _text(config: Config) -> Config:
    """Returns the settings of the decoder, which older files have outside of a section."""
    if "text_config" not in config:
        config = config.within({"text_config": config.values}, config.source)
    section = section_with_defaults(config, "text_config", _TEXT)
    section.check_depth("num_hidden_layers", section.integer("num_hidden_layers"))
    return section


def _vision(config: Config) -> Config:
    section = section_with_defaults(config, "vision_config", _VISION)
    section.check_depth("depth", section.integer("depth"))
    return section


def _of_head(config: Config) -> Config:
    values = {**with_end(config, _text(config)).values, "tie_word_embeddings": _is_tied(config)}
    return Config(values, config.source, config.tensors)


def _is_tied(config: Config) -> bool:
    # Older files have it in the section of the decoder.
    return config.flag("tie_word_embeddings", False) or _text(config).flag("tie_word_embeddings", False)
