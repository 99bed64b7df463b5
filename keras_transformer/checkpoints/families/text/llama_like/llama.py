"""Llama and Mistral: transformers' `LlamaModel`, `MistralModel`, and their heads; and what their kind share."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.decoders import (
    decoder_options,
    gated_decoder_entries,
    grouped_heads,
    head_width,
)
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry
from keras_transformer.models import Llama as LlamaModel
from keras_transformer.models import Mistral as MistralModel


class Llama(Architecture):
    """Llama: Touvron et al., arXiv 2302.13971; up to 3.2 (text)."""

    base_prefix = ("model.", "transformer.")
    ignored: tuple[str, ...] = (r"rotary_emb\.inv_freq$",)
    tied = {"lm_head.weight": "model.embed_tokens.weight"}
    heads = decoder_heads()

    def backbone(self, config: Config) -> keras.Model:
        return LlamaModel(
            model_size(config),
            config.integer("vocab_size"),
            **grouped_heads(config),
            position=rotary(config, head_width(config)),
            use_attention_bias=config.flag("attention_bias", False),
            use_feedforward_bias=config.flag("mlp_bias", False),
            **decoder_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("attention_bias", False)
        return gated_decoder_entries(
            config, bias=bias, output_bias=bias, feedforward_bias=config.flag("mlp_bias", False)
        )


class Mistral(Llama):
    """Mistral: Jiang et al., arXiv 2310.06825."""

    def backbone(self, config: Config) -> keras.Model:
        return MistralModel(
            model_size(config),
            config.integer("vocab_size"),
            **grouped_heads(config, num_key_value_heads=8),
            window=window(config, default=4096),
            position=rotary(config, head_width(config)),
            **decoder_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        return gated_decoder_entries(config)


def window(config: Config, default: int | None = None) -> int | None:
    """Returns the window of all layers; null in the config is None, not the default."""
    return config.integer("sliding_window", None if "sliding_window" in config.values else default)
