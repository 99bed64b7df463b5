"""Qwen3-MoE: transformers' `Qwen3MoeModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import head_width
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.families.text.mixtures_of_experts.qwen2_moe import qwen_moe, qwen_moe_entries
from keras_transformer.checkpoints.mapping import Entry


class Qwen3Moe(Llama):
    """Qwen3-MoE: Yang et al., arXiv 2505.09388, section 2: no shared expert."""

    heads = decoder_heads(names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        window = config.integer("sliding_window", 4096) if config.flag("use_sliding_window", False) else None
        return qwen_moe(
            config,
            num_key_value_heads=4,
            key_dim=head_width(config),
            experts={"num_experts": 128, "chosen": 8, "width": 768},
            shared=None,
            window=window,
            query_key_norm=True,
            use_bias=config.flag("attention_bias", False),
            name="qwen3_moe",
        )

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("attention_bias", False)
        return qwen_moe_entries(config, 128, shared=False, bias=bias, output_bias=bias, norms=True)
