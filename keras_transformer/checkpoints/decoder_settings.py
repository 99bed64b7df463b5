"""Settings of Llama and its relatives, as arguments of models."""

from __future__ import annotations

from typing import Any

from keras_transformer.checkpoints.config import Config


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
