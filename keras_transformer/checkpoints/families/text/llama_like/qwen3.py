"""Qwen3: transformers\' `Qwen3Model` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import (
    decoder_options,
    gated_decoder_entries,
    grouped_heads,
    head_width,
)
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.families.text.llama_like.qwen2 import windows
from keras_transformer.checkpoints.mapping import Entry
from keras_transformer.models import Qwen3 as Qwen3Model

_HEAD_WIDTH = 128


class Qwen3(Llama):
    """Qwen3: Yang et al., arXiv 2505.09388."""

    def backbone(self, config: Config) -> keras.Model:
        return Qwen3Model(
            model_size(config),
            config.integer("vocab_size"),
            **grouped_heads(config, num_key_value_heads=32, key_dim=_HEAD_WIDTH),
            window=windows(config),
            position=rotary(config, head_width(config, _HEAD_WIDTH)),
            use_attention_bias=config.flag("attention_bias", False),
            **decoder_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("attention_bias", False)
        return gated_decoder_entries(config, bias=bias, output_bias=bias, norms=True)
