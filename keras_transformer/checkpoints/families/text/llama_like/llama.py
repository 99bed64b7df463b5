"""Llama: transformers\' `LlamaModel` and its heads; and what its kind share."""

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
