"""Mistral: transformers\' `MistralModel` and its heads."""

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
from keras_transformer.checkpoints.mapping import Entry
from keras_transformer.models import Mistral as MistralModel


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
