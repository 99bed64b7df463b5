"""DeepSeek-V2, V3, R1 and Kimi K2: transformers' `DeepseekV2Model`, `DeepseekV3Model`, and their heads."""

from __future__ import annotations

from typing import NamedTuple

import keras

from keras_transformer.attention import MultiHeadLatentAttention, SoftmaxAttention
from keras_transformer.checkpoints.building.decoders import (
    decoder_entries,
    decoder_options,
    gated_feedforward_entries,
    norm_entries,
)
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary, score_scale
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.families.text.mixtures_of_experts.qwen_moe import expert_entries
from keras_transformer.checkpoints.layouts import HeadByHead
from keras_transformer.checkpoints.mapping import Entry, linear, rms_norm, same
from keras_transformer.feedforward import (
    GatedFeedForward,
    GroupLimitedRouter,
    MixtureOfExperts,
    SharedExpertMixture,
    TopKRouter,
)
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.positions import Rotary


class Defaults(NamedTuple):
    """transformers' defaults of the settings in which the versions differ; their names are those of the settings."""

    n_routed_experts: int = 256
    n_shared_experts: int = 1
    moe_intermediate_size: int = 2048
    first_k_dense_replace: int = 3
    routed_scaling_factor: float = 2.5
    rms_norm_eps: float = 1e-6


class DeepseekV3(Llama):
    """DeepSeek-V3: arXiv 2412.19437: latent attention, and experts in groups beside shared ones."""

    remark = "V3, R1; Kimi K2"
    defaults = Defaults()
    heads = decoder_heads(names=("CausalLM", "SequenceClassification", "TokenClassification"))

    def ignored_in(self, config: Config) -> tuple[str, ...]:
        # The layers after the last predict several tokens at once, which transformers does not read either.
        depth = config.integer("num_hidden_layers")
        extra = config.integer("num_nextn_predict_layers", 1, minimum=0)
        return (*self.ignored, *(rf"^model\.layers\.{depth + index}\." for index in range(extra)))

    def backbone(self, config: Config) -> keras.Model:
        size, common = model_size(config), decoder_options(config, self.defaults.rms_norm_eps)
        config.only("num_key_value_heads", size.num_heads, size.num_heads)
        activation = common["activation"]
        width = config.integer("moe_intermediate_size", self.defaults.moe_intermediate_size)
        experts = SharedExpertMixture(
            MixtureOfExperts(width, self.router(config), activation=activation),
            GatedFeedForward(width * self.num_shared_experts(config), activation),
            use_gate=False,
        )
        dense = GatedFeedForward(size.intermediate_dim, activation)
        return Decoder(
            size,
            config.integer("vocab_size"),
            position=None,
            norm=RMSNormalization(epsilon=common["rms_norm_epsilon"]),
            attention=self.mixers(config, common["attention_dropout"]),
            feedforward=[experts if sparse else dense for sparse in self.sparse_blocks(config)],
            name=config.get("model_type"),
        )

    def mixers(self, config: Config, dropout: float) -> list[keras.layers.Layer]:
        """Returns the mixer of each block, or one of all; `dropout` is that of the attention weights."""
        width = config.integer("qk_rope_head_dim", 64)
        return [latent_attention(config, rotary(config, width, layout=self.layout(config)), dropout)]

    def layout(self, config: Config) -> str:
        """Returns which features of a rotary key form a pair: a layout of `positions.Rotary`."""
        return "pairs" if config.flag("rope_interleave", True) else "halves"

    def router(self, config: Config) -> TopKRouter:
        """Returns the router of the experts."""
        count = self.num_experts(config)
        return GroupLimitedRouter(
            count,
            config.integer("num_experts_per_tok", 8, maximum=count),
            config.integer("n_group", 8),
            config.integer("topk_group", 4),
            scale=config.number("routed_scaling_factor", self.defaults.routed_scaling_factor),
            normalize=config.flag("norm_topk_prob", True),
        )

    def entries(self, config: Config) -> list[Entry]:
        sparse, count = iter(self.sparse_blocks(config)), self.num_experts(config)
        has_correction = getattr(self.router(config), "activation", None) == "sigmoid"

        def block(theirs: str, ours: str) -> list[Entry]:
            entries = [*norm_entries(theirs, ours), *latent_attention_entries(config, theirs, ours)]
            if not next(sparse):
                return [*entries, *gated_feedforward_entries(theirs, ours)]
            theirs, ours = f"{theirs}.mlp", f"{ours}/feedforward"
            for their, our in (("gate_proj", "gate"), ("up_proj", "hidden"), ("down_proj", "output")):
                entries += linear(f"{theirs}.shared_experts.{their}", f"{ours}/shared/{our}", bias=False)
            if has_correction:
                bias = f"{ours}/experts/router/correction_bias"
                entries.append(same(f"{theirs}.gate.e_score_correction_bias", bias))
            return [*entries, *expert_entries(theirs, f"{ours}/experts", count)]

        return decoder_entries(config, block)

    def num_experts(self, config: Config) -> int:
        """Returns the number of experts among which the router chooses."""
        return config.integer("n_routed_experts", self.defaults.n_routed_experts)

    def num_shared_experts(self, config: Config) -> int:
        """Returns the number of experts that every token has."""
        return config.integer("n_shared_experts", self.defaults.n_shared_experts)

    def sparse_blocks(self, config: Config) -> list[bool]:
        """Returns whether each block has experts."""
        first = config.integer("first_k_dense_replace", self.defaults.first_k_dense_replace, minimum=0)
        return [index >= first for index in range(config.integer("num_hidden_layers"))]


def _query_latent_dim(config: Config, default: int | None) -> int | None:
    # A null is no default: queries are projected directly.
    if config.values.get("q_lora_rank", 0) is None:
        return None
    return config.integer("q_lora_rank", default)


def latent_attention(
    config: Config, position: Rotary | None, dropout: float, query_latent_dim: int | None = 1536
) -> MultiHeadLatentAttention:
    """Returns latent attention; `query_latent_dim` is the default."""
    key_dim, rotary_dim = config.integer("qk_nope_head_dim", 128), config.integer("qk_rope_head_dim", 64)
    return MultiHeadLatentAttention(
        config.integer("num_attention_heads"),
        config.integer("kv_lora_rank", 512),
        key_dim,
        rotary_dim,
        config.integer("v_head_dim", 128),
        _query_latent_dim(config, query_latent_dim),
        scale=None if position is None else score_scale(config, key_dim + rotary_dim),
        mechanism=SoftmaxAttention(dropout=dropout),
        position=position,
        use_bias=config.flag("attention_bias", False),
    )


def latent_attention_entries(
    config: Config, theirs: str, ours: str, query_latent_dim: int | None = 1536
) -> list[Entry]:
    """Returns the mapping of latent attention; `query_latent_dim` is the default."""
    theirs, ours = f"{theirs}.self_attn", f"{ours}/self_attention"
    bias = config.flag("attention_bias", False)
    entries = [
        *linear(f"{theirs}.kv_a_proj_with_mqa", f"{ours}/latent", bias=bias),
        *rms_norm(f"{theirs}.kv_a_layernorm", f"{ours}/latent_norm"),
        Entry((f"{theirs}.kv_b_proj.weight",), (f"{ours}/key_up/kernel", f"{ours}/value_up/kernel"), HeadByHead()),
        *linear(f"{theirs}.o_proj", f"{ours}/attention_output", inputs=2, bias=bias),
    ]
    if _query_latent_dim(config, query_latent_dim) is None:
        return [*entries, *linear(f"{theirs}.q_proj", f"{ours}/query", bias=False)]
    return [
        *entries,
        *linear(f"{theirs}.q_a_proj", f"{ours}/query_down", bias=bias),
        *rms_norm(f"{theirs}.q_a_layernorm", f"{ours}/query_norm"),
        *linear(f"{theirs}.q_b_proj", f"{ours}/query_up", bias=False),
    ]


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
