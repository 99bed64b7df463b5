"""DeepSeek-V2: transformers' `DeepseekV2Model` and its heads."""

from __future__ import annotations

from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.mixtures_of_experts.deepseek_v3 import DeepseekV3, Defaults
from keras_transformer.feedforward import GroupLimitedRouter, TopKRouter


class DeepseekV2(DeepseekV3):
    """DeepSeek-V2: arXiv 2405.04434. "norm_topk_prob" is not read, as in transformers."""

    defaults = Defaults(64, 2, 1407, 0, 1.0)
    heads = decoder_heads(names=("CausalLM", "SequenceClassification"))

    def layout(self, config: Config) -> str:
        return "pairs"

    def router(self, config: Config) -> TopKRouter:
        count = self.num_experts(config)
        is_grouped = config.choice("topk_method", {"greedy": False, "group_limited_greedy": True}, "greedy")
        return GroupLimitedRouter(
            count,
            config.integer("num_experts_per_tok", maximum=count),
            config.integer("n_group") if is_grouped else 1,
            config.integer("topk_group") if is_grouped else 1,
            activation="softmax",
            scale=config.number("routed_scaling_factor", self.defaults.routed_scaling_factor),
            normalize=False,
        )
