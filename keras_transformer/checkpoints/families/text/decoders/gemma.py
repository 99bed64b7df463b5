"""Gemma: transformers\' `GemmaModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import gated_decoder_entries, grouped_heads, head_width
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.mapping import Entry
from keras_transformer.models import Gemma as GemmaModel

HEAD_WIDTH = 256


class Gemma(Llama):
    """Gemma: Gemma Team, arXiv 2403.08295."""

    heads = {name: head for name, head in decoder_heads(tied=True).items() if name != "QuestionAnswering"}

    def backbone(self, config: Config) -> keras.Model:
        config.only("use_bidirectional_attention", False, False)
        return GemmaModel(
            model_size(config),
            config.integer("vocab_size"),
            **grouped_heads(config, num_key_value_heads=16, key_dim=HEAD_WIDTH),
            position=rotary(config, head_width(config, HEAD_WIDTH)),
            use_attention_bias=config.flag("attention_bias", False),
            activation=activation(config, "hidden_act"),
            attention_dropout=config.number("attention_dropout", 0.0),
            rms_norm_epsilon=config.number("rms_norm_eps", 1e-6),
        )

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("attention_bias", False)
        return gated_decoder_entries(config, bias=bias, output_bias=bias)


def activation(config: Config, name: str) -> str:
    """Returns the activation of the gate; "gelu" in a config of Gemma is its tanh approximation."""
    found = config.activation(name, "gelu_pytorch_tanh")
    return "gelu_tanh" if found == "gelu" and name == "hidden_act" else found
