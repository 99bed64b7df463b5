"""Gemma, Gemma 2 and Gemma 3: transformers' `GemmaModel`, `Gemma2Model`, `Gemma3TextModel`, and their heads."""

from __future__ import annotations

import functools
from typing import Any

import keras

from keras_transformer.checkpoints.building.decoders import (
    attention_entries,
    decoder_entries,
    gated_decoder_entries,
    gated_feedforward_entries,
    grouped_heads,
    head_width,
    layer_windows,
)
from keras_transformer.checkpoints.building.heads import decoder_heads, language_model
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.mapping import Entry, rms_norm
from keras_transformer.models import Gemma as GemmaModel
from keras_transformer.models import Gemma2 as Gemma2Model
from keras_transformer.models import Gemma3 as Gemma3Model
from keras_transformer.positions import Rotary

HEAD_WIDTH = 256


class Gemma(Llama):
    """Gemma: Gemma Team, arXiv 2403.08295."""

    heads = {name: head for name, head in decoder_heads(tied=True).items() if name != "QuestionAnswering"}

    def backbone(self, config: Config) -> keras.Model:
        config.only("use_bidirectional_attention", False, False)
        return GemmaModel(
            model_size(config),
            config.integer("vocab_size"),
            **grouped_heads(config, num_key_value_heads=16, key_dim=HEAD_WIDTH),
            position=rotary(config, head_width(config, HEAD_WIDTH)),
            use_attention_bias=config.flag("attention_bias", False),
            activation=activation(config, "hidden_act"),
            attention_dropout=config.number("attention_dropout", 0.0),
            rms_norm_epsilon=config.number("rms_norm_eps", 1e-6),
        )

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("attention_bias", False)
        return gated_decoder_entries(config, bias=bias, output_bias=bias)


def activation(config: Config, name: str) -> str:
    """Returns the activation of the gate; "gelu" in a config of Gemma is its tanh approximation."""
    found = config.activation(name, "gelu_pytorch_tanh")
    return "gelu_tanh" if found == "gelu" and name == "hidden_act" else found


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


_HEADS_OF_3 = decoder_heads(language_model=functools.partial(capped_language_model, default=None), tied=True)


class Gemma3(Llama):
    """Gemma 3, text: Gemma Team, arXiv 2503.19786.

    transformers reads "attn_logit_softcapping", but does not cap the scores.
    """

    heads = {name: _HEADS_OF_3[name] for name in ("CausalLM", "SequenceClassification")}

    def backbone(self, config: Config) -> keras.Model:
        config.only("use_bidirectional_attention", False, False)
        period = config.integer("sliding_window_pattern", 6)
        count = config.integer("num_hidden_layers")
        types = ["sliding_attention" if (index + 1) % period else "full_attention" for index in range(count)]
        width = head_width(config, HEAD_WIDTH)
        return Gemma3Model(
            model_size(config),
            config.integer("vocab_size"),
            position=rotary(config, width, 1e6, "full_attention"),
            local_position=_local_position(config, width),
            **gemma2_options(config, types),
        )

    def entries(self, config: Config) -> list[Entry]:
        return sandwich_entries(config, norms=True)


def _local_position(config: Config, width: int) -> Rotary:
    """Returns the rotary position of blocks with a window; before version 5 with another wavelength and no scaling."""
    if "rope_parameters" in config:
        return rotary(config, width, 10000.0, "sliding_attention")
    return rotary(Config({"rope_theta": config.number("rope_local_base_freq", 10000.0)}, config.source), width)
