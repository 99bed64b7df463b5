"""RWKV-7: `RWKV7Model` of flash-linear-attention and its head, the layout of the published folders."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Expanded
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, norm, same
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models import RWKV7, RWKV7Ranks, Size

_MIXES = {"r": "receptance", "w": "decay", "k": "key", "v": "value", "a": "rate", "g": "gate"}
_DENSE = {"r_proj": "receptance", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
_LOW_RANK = {"w_lora": "decay", "a_lora": "rate", "v_lora": "value_mix", "g_lora": "gate"}
_VECTORS = {
    "k_k": "removal_scale",
    "k_a": "rate_scale",
    "r_k": "bonus",
    "g_norm.weight": "norm_scale",
    "g_norm.bias": "norm_offset",
}


class Rwkv7(Architecture):
    """RWKV-7: Peng et al., arXiv 2503.14456."""

    remark = "folders of flash-linear-attention"
    base_prefix = "model."
    tied = {"lm_head.weight": "model.embeddings.weight"}
    heads = decoder_heads(names=("CausalLM",))

    def backbone(self, config: Config) -> keras.Model:
        width, count = config.integer("hidden_size", 2048), config.integer("num_hidden_layers", 24)
        head_width = config.integer("head_dim", 64)
        _check(config, width, count, head_width)
        return RWKV7(
            Size(count, width, width // head_width, _intermediate(config, width)),
            config.integer("vocab_size", 32000),
            ranks=RWKV7Ranks(
                config.integer("decay_low_rank_dim", 64),
                config.integer("a_low_rank_dim", 64),
                config.integer("gate_low_rank_dim", 128),
                config.integer("v_low_rank_dim", 16),
            ),
            norm=LayerNormalization(epsilon=config.number("norm_eps", 1e-5), center=config.flag("norm_bias", True)),
            use_embedding_norm=config.flag("norm_first", True),
        )

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("norm_bias", True)
        entries = [*embedding("embeddings", "token_embedding"), *norm("norm", "final_norm", bias)]
        if config.flag("norm_first", True):
            entries += norm("layers.0.pre_norm", "embedding_norm", bias)
        for index in range(config.integer("num_hidden_layers", 24)):
            theirs, ours = f"layers.{index}", f"decoder_block_{index}"
            entries += [
                *norm(f"{theirs}.attn_norm", f"{ours}/mixer_residual/norm", bias),
                *norm(f"{theirs}.ffn_norm", f"{ours}/feedforward_residual/norm", bias),
                *_time_mixing(f"{theirs}.attn", f"{ours}/time_mixing", is_first=index == 0),
                same(f"{theirs}.ffn.x_k", f"{ours}/channel_mixing/token_shift/mix_key"),
                *linear(f"{theirs}.ffn.key", f"{ours}/channel_mixing/key", bias=False),
                *linear(f"{theirs}.ffn.value", f"{ours}/channel_mixing/output", bias=False),
            ]
        return entries


def _time_mixing(theirs: str, ours: str, is_first: bool) -> list[Entry]:
    entries = [same(f"{theirs}.{their}", f"{ours}/{our}") for their, our in _VECTORS.items()]
    for their, our in _MIXES.items():
        entries.append(Entry((f"{theirs}.x_{their}",), (f"{ours}/token_shift/mix_{our}",), Expanded(2)))
    for their, our in _DENSE.items():
        entries += linear(f"{theirs}.{their}", f"{ours}/{our}", bias=False)
    for their, our in _LOW_RANK.items():
        if our == "value_mix" and is_first:
            continue
        entries += linear(f"{theirs}.{their}.lora.0", f"{ours}/{our}_input", bias=False)
        entries += linear(f"{theirs}.{their}.lora.2", f"{ours}/{our}", bias=False)
        if our != "gate":
            entries.append(same(f"{theirs}.{their}.lora.2.bias", f"{ours}/{our}_bias"))
    return entries


def _intermediate(config: Config, width: int) -> int:
    if config.get("intermediate_size", None) is not None:
        return config.integer("intermediate_size")
    ratio = 4 if config.get("hidden_ratio", None) is None else config.number("hidden_ratio")
    return -(-int(width * ratio) // 32) * 32


def _check(config: Config, width: int, count: int, head_width: int) -> None:
    """Raises `ConfigError` for what the model does not have."""
    if width % head_width:
        config.only("head_dim", f"a divisor of {width}, the hidden size")
    config.only("num_heads", width // head_width)
    config.only("attn", None, None)
    config.only("hidden_act", "sqrelu")
    values = config.get("value_dim", width)
    if values not in (width, [width] * count):
        config.only("value_dim", width)
