"""Llama and its relatives: settings as arguments of models, and the mapping of their tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import HeadByHead
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, rms_norm


def decoder_entries(
    config: Config, block_entries: Callable[[str, str], list[Entry]], kind: str = "decoder"
) -> list[Entry]:
    """Returns the mapping of embedding, blocks and last norm; `block_entries` is a function of `(theirs, ours)`.

    `kind`: "decoder" or "encoder".
    """
    entries = [*embedding("embed_tokens", "token_embedding"), *rms_norm("norm", "final_norm")]
    for index in range(config.integer("num_hidden_layers")):
        entries += block_entries(f"layers.{index}", f"{kind}_block_{index}")
    return entries


def gated_decoder_entries(
    config: Config, *, feedforward_bias: bool = False, kind: str = "decoder", **attention: Any
) -> list[Entry]:
    """`decoder_entries` of pre-norm blocks with a gated feed-forward; `attention`: options of `attention_entries`."""
    return decoder_entries(
        config,
        lambda theirs, ours: [
            *norm_entries(theirs, ours),
            *attention_entries(theirs, ours, **attention),
            *gated_feedforward_entries(theirs, ours, bias=feedforward_bias),
        ],
        kind,
    )


def norm_entries(theirs: str, ours: str) -> list[Entry]:
    """The norms of a pre-norm block."""
    return [
        *rms_norm(f"{theirs}.input_layernorm", f"{ours}/mixer_residual/norm"),
        *rms_norm(f"{theirs}.post_attention_layernorm", f"{ours}/feedforward_residual/norm"),
    ]


def attention_entries(
    theirs: str, ours: str, *, bias: bool = False, output_bias: bool = False, norms: bool = False, gated: bool = False
) -> list[Entry]:
    """The projections of attention, and its norms of queries and keys if there are any.

    `gated`: whether queries have the output gate beside them, head by head.
    """
    theirs, ours = f"{theirs}.self_attn", f"{ours}/self_attention"
    entries = linear(f"{theirs}.o_proj", f"{ours}/attention_output", inputs=2, bias=output_bias)
    for short, name in (("q", "query"), ("k", "key"), ("v", "value"))[gated:]:
        entries += linear(f"{theirs}.{short}_proj", f"{ours}/{name}", bias=bias)
    if gated:
        for their, our in (("weight", "kernel"), ("bias", "bias"))[: 1 + bias]:
            parts = (f"{ours}/query/{our}", f"{ours}/gate/{our}")
            entries.append(Entry((f"{theirs}.q_proj.{their}",), parts, HeadByHead()))
    if norms:
        entries += rms_norm(f"{theirs}.q_norm", f"{ours}/query_norm")
        entries += rms_norm(f"{theirs}.k_norm", f"{ours}/key_norm")
    return entries


def gated_feedforward_entries(theirs: str, ours: str, *, bias: bool = False) -> list[Entry]:
    """The gated feed-forward."""
    theirs, ours = f"{theirs}.mlp", f"{ours}/feedforward"
    return [
        *linear(f"{theirs}.gate_proj", f"{ours}/gate", bias=bias),
        *linear(f"{theirs}.up_proj", f"{ours}/hidden", bias=bias),
        *linear(f"{theirs}.down_proj", f"{ours}/output", bias=bias),
    ]


def decoder_options(config: Config, rms_norm_epsilon: float = 1e-6) -> dict[str, Any]:
    """Returns the options that all relatives of Llama share; the epsilon is the default."""
    return {
        "activation": config.activation(default="silu"),
        "attention_dropout": config.number("attention_dropout", 0.0),
        "rms_norm_epsilon": config.number("rms_norm_eps", rms_norm_epsilon),
    }


def head_width(config: Config, default: int | None = None) -> int:
    """Returns the width of each head; without a setting `default`, or else an equal share."""
    share = config.integer("hidden_size") // config.integer("num_attention_heads")
    return config.integer("head_dim", default or share)


def grouped_heads(config: Config, num_key_value_heads: int | None = None, key_dim: int | None = None) -> dict[str, Any]:
    """Returns the options of grouped heads; the arguments are the defaults of missing settings."""
    heads = config.integer("num_key_value_heads", num_key_value_heads or config.integer("num_attention_heads"))
    return {"num_key_value_heads": heads, "key_dim": head_width(config, key_dim)}


def layer_windows(config: Config, window: int | None, types: Any = None) -> list[int | None]:
    """Returns the window of each block, None for all tokens; `types` is the default of "layer_types"."""
    types = config.get("layer_types", types)
    known = {"full_attention": None, "sliding_attention": window}
    count = config.integer("num_hidden_layers")
    if not isinstance(types, list) or len(types) != count or not all(kind in list(known) for kind in types):
        config.only("layer_types", f"one of {sorted(known)} for each of {count} layers")
    return [known[each] for each in types]
