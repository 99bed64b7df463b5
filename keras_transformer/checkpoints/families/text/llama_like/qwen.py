"""Qwen2, 2.5 and 3: transformers' `Qwen2Model`, `Qwen3Model`, and their heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import (
    decoder_options,
    gated_decoder_entries,
    grouped_heads,
    head_width,
    layer_windows,
)
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.mapping import Entry
from keras_transformer.models import Qwen2 as Qwen2Model
from keras_transformer.models import Qwen3 as Qwen3Model


class Qwen2(Llama):
    """Qwen2: Yang et al., arXiv 2407.10671."""

    def backbone(self, config: Config) -> keras.Model:
        return Qwen2Model(
            model_size(config),
            config.integer("vocab_size"),
            **grouped_heads(config, num_key_value_heads=32),
            window=windows(config),
            position=rotary(config, head_width(config)),
            **decoder_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        return gated_decoder_entries(config, bias=True)


def windows(config: Config) -> list[int | None]:
    """Returns the window of each block: from "max_window_layers" on, if "use_sliding_window" is set."""
    width = config.integer("sliding_window", 4096) if config.flag("use_sliding_window", False) else None
    first = config.integer("max_window_layers", 28, minimum=0)
    types = [
        "sliding_attention" if width is not None and index >= first else "full_attention"
        for index in range(config.integer("num_hidden_layers"))
    ]
    return layer_windows(config, width, types)


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
