"""Qwen3-MoE: transformers' `Qwen3MoeModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import decoder_options, head_width
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.families.text.mixtures_of_experts.qwen2_moe import (
    Experts,
    qwen_moe,
    qwen_moe_entries,
)
from keras_transformer.checkpoints.mapping import Entry
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, rotary_attention


class Qwen3Moe(Llama):
    """Qwen3-MoE: Yang et al., arXiv 2505.09388, section 2: no shared expert."""

    heads = decoder_heads(names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        options, width = decoder_options(config), head_width(config)
        norm = RMSNormalization(epsilon=options["rms_norm_epsilon"])
        attention = rotary_attention(
            GroupedSize(model_size(config), config.integer("num_key_value_heads", 4), width),
            rotary(config, width),
            window=config.integer("sliding_window", 4096) if config.flag("use_sliding_window", False) else None,
            dropout=options["attention_dropout"],
            query_key_norm=norm,
            use_bias=config.flag("attention_bias", False),
        )
        return qwen_moe(config, attention, norm, Experts(128, 8, 768), name="qwen3_moe")

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("attention_bias", False)
        return qwen_moe_entries(config, 128, shared=False, bias=bias, output_bias=bias, norms=True)
