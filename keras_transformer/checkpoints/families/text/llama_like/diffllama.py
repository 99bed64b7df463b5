"""DiffLlama: transformers' `DiffLlamaModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.attention import DifferentialAttention, MultiHeadAttention
from keras_transformer.checkpoints.building.decoders import (
    attention_entries,
    decoder_entries,
    decoder_options,
    gated_feedforward_entries,
    grouped_heads,
    norm_entries,
)
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.mapping import Entry, same
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.text.decoders.decoder import Decoder

_VECTORS = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")


class DiffLlama(Llama):
    """DiffLlama: Llama with the attention of Ye et al., Differential Transformer, arXiv 2410.05258."""

    def backbone(self, config: Config) -> keras.Model:
        size, heads, common = model_size(config), grouped_heads(config), decoder_options(config, 1e-5)
        for name, count in (
            ("num_attention_heads", size.num_heads),
            ("num_key_value_heads", heads["num_key_value_heads"]),
        ):
            if count % 2:
                config.only(name, "an even number")
        if common["attention_dropout"]:  # transformers refuses it, too.
            config.only("attention_dropout", 0.0)
        epsilon = common["rms_norm_epsilon"]

        def mixer(index: int) -> keras.layers.Layer:
            initial = DifferentialAttention.initial_lambda(index)
            return MultiHeadAttention(
                size.num_heads,
                **heads,
                # The name is part of the paths of the vectors.
                mechanism=DifferentialAttention(initial, epsilon, name="mechanism"),
                position=rotary(config, heads["key_dim"]),
                use_bias=config.flag("attention_bias", False),
            )

        return Decoder(
            size,
            config.integer("vocab_size"),
            position=None,
            norm=RMSNormalization(epsilon=epsilon),
            attention=[mixer(index) for index in range(size.num_layers)],
            feedforward=GatedFeedForward(size.intermediate_dim, common["activation"]),
            name="diffllama",
        )

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("attention_bias", False)
        return decoder_entries(
            config,
            lambda theirs, ours: [
                *norm_entries(theirs, ours),
                *attention_entries(theirs, ours, bias=bias, output_bias=bias),
                *(same(f"{theirs}.self_attn.{name}", f"{ours}/self_attention/mechanism/{name}") for name in _VECTORS),
                *gated_feedforward_entries(theirs, ours),
            ],
        )
