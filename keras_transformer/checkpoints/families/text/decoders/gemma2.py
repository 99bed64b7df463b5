"""Gemma 2: transformers\' `Gemma2Model` and its heads."""

from __future__ import annotations

import functools
from typing import Any

import keras

from keras_transformer.checkpoints.building.decoders import (
    attention_entries,
    decoder_entries,
    gated_feedforward_entries,
    grouped_heads,
    head_width,
    layer_windows,
)
from keras_transformer.checkpoints.building.heads import decoder_heads, language_model
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.decoders.gemma import HEAD_WIDTH, activation
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.mapping import Entry, rms_norm
from keras_transformer.models import Gemma2 as Gemma2Model


def capped_language_model(
    backbone: keras.Model, config: Config, *, default: float | None, **options: Any
) -> keras.Model:
    """Returns the language model, with soft-capped logits if the config has a cap."""
    return language_model(
        backbone, config, logit_soft_cap=soft_cap(config, "final_logit_softcapping", default), **options
    )


_HEADS = decoder_heads(language_model=functools.partial(capped_language_model, default=30.0), tied=True)


class Gemma2(Llama):
    """Gemma 2: Gemma Team, arXiv 2408.00118."""

    heads = {name: head for name, head in _HEADS.items() if name != "QuestionAnswering"}

    def backbone(self, config: Config) -> keras.Model:
        config.only("use_bidirectional_attention", False, False)
        types = [
            "full_attention" if index % 2 else "sliding_attention"
            for index in range(config.integer("num_hidden_layers"))
        ]
        return Gemma2Model(
            model_size(config),
            config.integer("vocab_size"),
            score_soft_cap=soft_cap(config, "attn_logit_softcapping", 50.0),
            position=rotary(config, head_width(config, HEAD_WIDTH)),
            **gemma2_options(config, types),
        )

    def entries(self, config: Config) -> list[Entry]:
        return sandwich_entries(config)


def gemma2_options(config: Config, types: list[str]) -> dict[str, Any]:
    """Returns the arguments that Gemma 2 and later versions share.

    Args:
        config: `Config`.
        types: list of str. The kind of attention of each layer, if the config has none.
    """
    return {
        **grouped_heads(config, num_key_value_heads=4, key_dim=HEAD_WIDTH),
        "query_scale": config.number("query_pre_attn_scalar", 256.0) ** -0.5,
        "window": layer_windows(config, config.integer("sliding_window", 4096), types),
        "use_attention_bias": config.flag("attention_bias", False),
        "activation": activation(config, "hidden_activation"),
        "attention_dropout": config.number("attention_dropout", 0.0),
        "rms_norm_epsilon": config.number("rms_norm_eps", 1e-6),
    }


def sandwich_entries(config: Config, norms: bool = False) -> list[Entry]:
    """Those of a decoder with norms on both sides of attention and feed-forward; with `norms`, of queries and keys too."""
    bias = config.flag("attention_bias", False)
    return decoder_entries(
        config,
        lambda theirs, ours: [
            *rms_norm(f"{theirs}.input_layernorm", f"{ours}/mixer_residual/input_norm"),
            *rms_norm(f"{theirs}.post_attention_layernorm", f"{ours}/mixer_residual/output_norm"),
            *rms_norm(f"{theirs}.pre_feedforward_layernorm", f"{ours}/feedforward_residual/input_norm"),
            *rms_norm(f"{theirs}.post_feedforward_layernorm", f"{ours}/feedforward_residual/output_norm"),
            *attention_entries(theirs, ours, bias=bias, output_bias=bias, norms=norms),
            *gated_feedforward_entries(theirs, ours),
        ],
    )


def soft_cap(config: Config, name: str, default: float | None) -> float | None:
    """float or None; a null in the config is None, and not the default."""
    return config.number(name, None if name in config.values else default)
