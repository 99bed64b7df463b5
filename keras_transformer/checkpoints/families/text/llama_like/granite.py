"""Granite: transformers' `GraniteModel` and its language model."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer.attention import ScaledDot
from keras_transformer.blocks import ScaledResidual
from keras_transformer.checkpoints.building.decoders import decoder_options, head_width
from keras_transformer.checkpoints.building.heads import decoder_heads, language_model
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, rotary_attention
from keras_transformer.models.text.decoders.decoder import Decoder


def _language_model(backbone: keras.Model, config: Config, **options: Any) -> keras.Model:
    scale = config.number("logits_scaling", 1.0)
    if scale == 0:
        raise ConfigError(f"{config.source}: 'logits_scaling' is 0; logits are divided by it.")
    return language_model(backbone, config, head_scale=1 / scale, **options)


class Granite(Llama):
    """Granite 3: IBM, Granite 3.0 Language Models, 2024: Llama with factors of embeddings, scores, sublayers and logits."""

    heads = decoder_heads(language_model=_language_model, names=("CausalLM",))

    def backbone(self, config: Config) -> keras.Model:
        size, options = model_size(config), decoder_options(config)
        norm = RMSNormalization(epsilon=options["rms_norm_epsilon"])
        attention = rotary_attention(
            GroupedSize(size, config.integer("num_key_value_heads", size.num_heads), head_width(config)),
            rotary(config, head_width(config)),
            scoring=ScaledDot(config.number("attention_multiplier", 1.0)),
            dropout=options["attention_dropout"],
            use_bias=config.flag("attention_bias", False),
        )
        return Decoder(
            size,
            config.integer("vocab_size"),
            position=None,
            residual=ScaledResidual(config.number("residual_multiplier", 1.0), norm),
            norm=norm,
            embedding_scale=config.number("embedding_multiplier", 1.0) or None,
            attention=attention,
            feedforward=GatedFeedForward(
                size.intermediate_dim, options["activation"], use_bias=config.flag("mlp_bias", False)
            ),
            name="granite",
        )
