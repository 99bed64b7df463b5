"""Gemma 3, its text model: transformers\' `Gemma3TextModel` and its heads."""

from __future__ import annotations

import functools

import keras

from keras_transformer.checkpoints.building.decoders import head_width
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.decoders.gemma import HEAD_WIDTH
from keras_transformer.checkpoints.families.text.decoders.gemma2 import (
    capped_language_model,
    gemma2_options,
    sandwich_entries,
)
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.mapping import Entry
from keras_transformer.models import Gemma3 as Gemma3Model
from keras_transformer.positions import Rotary

_HEADS = decoder_heads(language_model=functools.partial(capped_language_model, default=None), tied=True)


class Gemma3(Llama):
    """Gemma 3, text: Gemma Team, arXiv 2503.19786.

    transformers reads "attn_logit_softcapping", but does not cap the scores.
    """

    heads = {name: _HEADS[name] for name in ("CausalLM", "SequenceClassification")}

    def backbone(self, config: Config) -> keras.Model:
        config.only("use_bidirectional_attention", False, False)
        period = config.integer("sliding_window_pattern", 6)
        count = config.integer("num_hidden_layers")
        types = ["sliding_attention" if (index + 1) % period else "full_attention" for index in range(count)]
        width = head_width(config, HEAD_WIDTH)
        return Gemma3Model(
            model_size(config),
            config.integer("vocab_size"),
            position=rotary(config, width, 1e6, "full_attention"),
            local_position=_local_position(config, width),
            **gemma2_options(config, types),
        )

    def entries(self, config: Config) -> list[Entry]:
        return sandwich_entries(config, norms=True)


def _local_position(config: Config, width: int) -> Rotary:
    """Returns the rotary position of blocks with a window; before version 5 with another wavelength and no scaling."""
    if "rope_parameters" in config:
        return rotary(config, width, 10000.0, "sliding_attention")
    return rotary(Config({"rope_theta": config.number("rope_local_base_freq", 10000.0)}, config.source), width)
