"""Kimi Linear: transformers' `KimiLinearModel` and its language model."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import decoder_entries, norm_entries
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.mixtures_of_experts.deepseek import (
    DeepseekV3,
    Defaults,
    latent_attention,
    latent_attention_entries,
)
from keras_transformer.checkpoints.families.text.mixtures_of_experts.mixtral import expert_entries
from keras_transformer.checkpoints.layouts import Expanded, Joined, Transposed
from keras_transformer.checkpoints.mapping import Entry, linear, same
from keras_transformer.feedforward import GroupLimitedRouter
from keras_transformer.recurrence import KimiDeltaAttention

_KINDS = {"linear_attention": True, "full_attention": False}
_FEEDFORWARDS = {"sparse": True, "dense": False}
# Names of projections in both; each is a matrix without a bias.
_RECURRENT = {
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "b_proj": "rate",
    "f_a_proj": "step_input",
    "f_b_proj": "step",
    "g_a_proj": "gate_input",
    "g_b_proj": "gate",
    "o_proj": "output",
}
_GATED = {"gate_proj": "gate", "up_proj": "hidden", "down_proj": "output"}


class KimiLinear(DeepseekV3):
    """Kimi Linear: arXiv 2510.26692: blocks of Kimi Delta Attention and of latent attention without positions, and experts.

    Settings of transformers and of the published folders, which list the blocks of each kind in "linear_attn_config".
    """

    remark = "experts"
    defaults = Defaults(256, 1, 1024, 1, 2.446, 1e-5)
    heads = decoder_heads(names=("CausalLM",))

    def mixers(self, config: Config, dropout: float) -> list[keras.layers.Layer]:
        config.only("mla_use_nope", True)
        nested = config.section("linear_attn_config") if "linear_attn_config" in config else Config({})
        width = nested.integer("head_dim", config.integer("linear_head_dim", 128))
        recurrence = KimiDeltaAttention(
            nested.integer("num_heads", config.integer("linear_num_heads", 32)),
            width,
            gate_rank=width,
            kernel_size=nested.integer(
                "short_conv_kernel_size", config.integer("linear_conv_kernel_dim", 4, minimum=2), minimum=2
            ),
            activation=config.activation(default="silu"),
            epsilon=config.number("rms_norm_eps", self.defaults.rms_norm_eps),
        )
        attention = latent_attention(config, None, dropout, query_latent_dim=None)
        return [recurrence if is_linear else attention for is_linear in _linear_blocks(config)]

    def router(self, config: Config) -> GroupLimitedRouter:
        config.only("moe_router_activation_func", "sigmoid")
        count = self.num_experts(config)
        return GroupLimitedRouter(
            count,
            _integer(config, "num_experts_per_token", "num_experts_per_tok", 8, maximum=count),
            _integer(config, "num_expert_group", "n_group", 1),
            config.integer("topk_group", 1),
            scale=config.number("routed_scaling_factor", self.defaults.routed_scaling_factor),
            normalize=config.flag("moe_renormalize", config.flag("norm_topk_prob", True)),
        )

    def num_experts(self, config: Config) -> int:
        return _integer(config, "num_experts", "num_local_experts", self.defaults.n_routed_experts)

    def num_shared_experts(self, config: Config) -> int:
        return _integer(config, "num_shared_experts", "n_shared_experts", self.defaults.n_shared_experts)

    def sparse_blocks(self, config: Config) -> list[bool]:
        config.only("moe_layer_freq", 1)
        default = [list(_FEEDFORWARDS)[not is_sparse] for is_sparse in super().sparse_blocks(config)]
        return _of_blocks(config, "mlp_layer_types", _FEEDFORWARDS, default)

    def entries(self, config: Config) -> list[Entry]:
        linear_blocks, sparse = iter(_linear_blocks(config)), iter(self.sparse_blocks(config))
        count = Config({"num_local_experts": self.num_experts(config)})

        def block(theirs: str, ours: str) -> list[Entry]:
            entries = norm_entries(theirs, ours)
            if next(linear_blocks):
                entries += _recurrence_entries(f"{theirs}.self_attn", f"{ours}/self_attention")
            else:
                entries += latent_attention_entries(config, theirs, ours, query_latent_dim=None)
            ours, experts = f"{ours}/feedforward", f"{theirs}.block_sparse_moe"
            if not next(sparse):
                return [*entries, *_gated_entries(_dense_name(config, theirs), ours)]
            entries += _gated_entries(f"{experts}.shared_experts", f"{ours}/shared")
            bias = f"{ours}/experts/router/correction_bias"
            entries.append(same(f"{experts}.gate.e_score_correction_bias", bias))
            return [*entries, *expert_entries(count, theirs, f"{ours}/experts")]

        return decoder_entries(config, block)


def _recurrence_entries(theirs: str, ours: str) -> list[Entry]:
    entries = []
    for their, our in _RECURRENT.items():
        entries += linear(f"{theirs}.{their}", f"{ours}/{our}", bias=False)
    convolutions = tuple(f"{theirs}.{letter}_conv1d.weight" for letter in "qkv")
    return [
        *entries,
        Entry(convolutions, (f"{ours}/convolution/kernel",), Joined((1, 1, 1), Transposed((1, 2, 0)), axis=1)),
        Entry((f"{theirs}.A_log",), (f"{ours}/decay/log_speed",), Expanded(2, after=1)),
        same(f"{theirs}.dt_bias", f"{ours}/decay/step_bias"),
        same(f"{theirs}.o_norm.weight", f"{ours}/norm_scale"),
    ]


def _gated_entries(theirs: str, ours: str) -> list[Entry]:
    entries = []
    for their, our in _GATED.items():
        entries += linear(f"{theirs}.{their}", f"{ours}/{our}", bias=False)
    return entries


def _dense_name(config: Config, theirs: str) -> str:
    """The prefix of a dense feed-forward: "mlp" in published folders; transformers writes it like that of experts."""
    written = f"{theirs}.block_sparse_moe"
    return written if any(f"{written}.up_proj.weight" in name for name in config.tensors) else f"{theirs}.mlp"


def _linear_blocks(config: Config) -> list[bool]:
    """Returns whether each block has Kimi Delta Attention; by default all but every fourth after the first."""
    count = config.integer("num_hidden_layers")
    default = ["full_attention" if index and index % 4 == 0 else "linear_attention" for index in range(count)]
    if "layer_types" not in config and "linear_attn_config" in config:
        nested = config.section("linear_attn_config")
        full, linear = (nested.get(name) for name in ("full_attn_layers", "kda_layers"))
        if full is not None and linear is not None:
            # Counted from 1.
            if not (isinstance(full, list) and isinstance(linear, list)) or sorted(full + linear) != [
                *range(1, count + 1)
            ]:
                nested.only("kda_layers", f"those of {count} layers that are not in 'full_attn_layers'")
            return [index in linear for index in range(1, count + 1)]
    return _of_blocks(config, "layer_types", _KINDS, default)


def _of_blocks(config: Config, name: str, known: dict[str, bool], default: list[str]) -> list[bool]:
    """Returns the value in `known` of the kind of each block."""
    kinds, count = config.get(name, default), config.integer("num_hidden_layers")
    if not isinstance(kinds, list) or len(kinds) != count or not all(kind in list(known) for kind in kinds):
        config.only(name, f"one of {sorted(known)} for each of {count} layers")
    return [known[kind] for kind in kinds]


def _integer(config: Config, name: str, other: str, default: int, **options: int) -> int:
    """Returns a setting that has two names."""
    return config.integer(name, config.integer(other, default, **options), **options)
