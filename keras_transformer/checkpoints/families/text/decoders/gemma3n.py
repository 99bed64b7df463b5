"""Gemma 3n, its text model: transformers' `Gemma3nTextModel` and its language model."""

from __future__ import annotations

import functools
from typing import Any

import keras

from keras_transformer.checkpoints.building.decoders import gated_feedforward_entries, grouped_heads, layer_windows
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.decoders.gemma import HEAD_WIDTH, activation, capped_language_model
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, rms_norm, same
from keras_transformer.feedforward import GatedFeedForward, GaussianTopK
from keras_transformer.models import Gemma3n as Gemma3nModel
from keras_transformer.models import Gemma3nStreams, Size
from keras_transformer.models.text.decoders.gemma3n import sharing_sources

_HEADS = decoder_heads(language_model=functools.partial(capped_language_model, default=30.0), tied=True)
# Names of norms and of matrices of a block, in both.
_BLOCK_NORMS = {
    "input_layernorm": "input_norm",
    "post_attention_layernorm": "attention_norm",
    "pre_feedforward_layernorm": "feedforward_input_norm",
    "post_feedforward_layernorm": "feedforward_norm",
    "laurel.post_laurel_norm": "laurel_norm",
    "post_per_layer_input_norm": "layer_norm",
    "altup.router_norm": "alt_up/router_norm",
}
_BLOCK_MATRICES = {
    "laurel.linear_left": "laurel_left",
    "laurel.linear_right": "laurel_right",
    "per_layer_input_gate": "layer_gate",
    "per_layer_projection": "layer_projection",
    "altup.modality_router": "alt_up/router",
    "altup.prediction_coefs": "alt_up/prediction",
    "altup.correction_coefs": "alt_up/correction",
}


class Gemma3n(Llama):
    """Gemma 3n, text: Google, 2025."""

    heads = {"CausalLM": _HEADS["CausalLM"]}

    def ignored_in(self, config: Config) -> tuple[str, ...]:
        # Published folders have keys and values of blocks that share those of others.
        sharing = [index for index, source in enumerate(_sources(config)) if source is not None]
        parts = "(k_proj|v_proj|k_norm|v_norm)"
        return (*self.ignored, *(rf"layers\.{index}\.self_attn\.{parts}\." for index in sharing))

    def backbone(self, config: Config) -> keras.Model:
        heads = grouped_heads(config, num_key_value_heads=2, key_dim=HEAD_WIDTH)
        count, dims = config.integer("num_hidden_layers"), _intermediate_dims(config)
        size = Size(count, config.integer("hidden_size"), config.integer("num_attention_heads", 8), max(dims))
        streams = Gemma3nStreams(
            config.integer("altup_num_inputs", 4, minimum=2),
            config.integer("altup_active_idx", 0, minimum=0, maximum=config.integer("altup_num_inputs", 4) - 1),
            config.number("altup_coef_clip", None if "altup_coef_clip" in config.values else 120.0),
            config.flag("altup_correct_scale", True),
            config.integer("laurel_rank", 64),
            config.integer("hidden_size_per_layer_input", 256),
            config.integer("vocab_size_per_layer_input", 262144),
        )
        act, width = activation(config, "hidden_activation"), heads["key_dim"]
        return Gemma3nModel(
            size,
            config.integer("vocab_size"),
            **heads,
            num_sharing_blocks=_num_sharing_blocks(config),
            streams=streams,
            feedforward=[
                GatedFeedForward(dim, GaussianTopK(sparsity, act) if sparsity else act)
                for dim, sparsity in zip(dims, _sparsities(config), strict=True)
            ],
            window=_windows(config),
            positions=(
                rotary(config, width, 1e6, "full_attention"),
                rotary(config, width, 10000.0, "sliding_attention"),
            ),
            use_attention_bias=config.flag("attention_bias", False),
            activation=act,
            attention_dropout=config.number("attention_dropout", 0.0),
            rms_norm_epsilon=config.number("rms_norm_eps", 1e-6),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [
            *embedding("embed_tokens", "token_embedding"),
            *embedding("embed_tokens_per_layer", "layer_embedding"),
            *linear("per_layer_model_projection", "layer_embedding/projection", bias=False),
            *rms_norm("per_layer_projection_norm", "layer_embedding/norm"),
            *rms_norm("norm", "final_norm"),
        ]
        for index in range(1, config.integer("altup_num_inputs", 4)):
            for theirs, ours in (("projections", "stream_expansion"), ("unembed_projections", "stream_reduction")):
                entries += linear(f"altup_{theirs}.{index - 1}", f"{ours}/projection_{index}", bias=False)
        for index, source in enumerate(_sources(config)):
            theirs, ours = f"layers.{index}", f"decoder_block_{index}"
            entries += _block_entries(theirs, ours)
            entries += _attention_entries(theirs, ours, config.flag("attention_bias", False), source is None)
        return entries


def _block_entries(theirs: str, ours: str) -> list[Entry]:
    entries = [
        *gated_feedforward_entries(theirs, ours),
        same(f"{theirs}.altup.correct_output_scale", f"{ours}/alt_up/output_scale"),
    ]
    for their, our in _BLOCK_NORMS.items():
        entries += rms_norm(f"{theirs}.{their}", f"{ours}/{our}")
    for their, our in _BLOCK_MATRICES.items():
        entries += linear(f"{theirs}.{their}", f"{ours}/{our}", bias=False)
    return entries


def _attention_entries(theirs: str, ours: str, bias: bool, has_keys: bool) -> list[Entry]:
    theirs, attention = f"{theirs}.self_attn", f"{ours}/self_attention"
    entries = [
        *linear(f"{theirs}.q_proj", f"{attention}/query", bias=bias),
        *linear(f"{theirs}.o_proj", f"{attention}/attention_output", inputs=2, bias=bias),
        *rms_norm(f"{theirs}.q_norm", f"{attention}/query_norm"),
    ]
    if has_keys:
        for letter, name in (("k", "key"), ("v", "value")):
            entries += linear(f"{theirs}.{letter}_proj", f"{ours}/key_value/{name}", bias=bias)
        entries += rms_norm(f"{theirs}.k_norm", f"{ours}/key_value/key_norm")
    return entries


def _windows(config: Config) -> list[int | None]:
    count = config.integer("num_hidden_layers")
    types = ["sliding_attention" if (index + 1) % 5 else "full_attention" for index in range(count)]
    return layer_windows(config, config.integer("sliding_window", 512), types)


def _num_sharing_blocks(config: Config) -> int:
    count = config.integer("num_hidden_layers")
    return config.integer("num_kv_shared_layers", 15, minimum=0, maximum=count - 1)


def _sources(config: Config) -> list[int | None]:
    try:
        return sharing_sources([window is not None for window in _windows(config)], _num_sharing_blocks(config))
    except ValueError:
        config.only("num_kv_shared_layers", "a number that leaves a layer of each type before the shared ones")
        raise


def _intermediate_dims(config: Config) -> list[int]:
    """Returns the width of the feed-forward of each block; one number is that of all."""
    count, found = config.integer("num_hidden_layers"), config.get("intermediate_size", 16384)
    if not isinstance(found, list):
        return [config.integer("intermediate_size", 16384)] * count
    return [
        config.within({"intermediate_size": each}, "").integer("intermediate_size") for each in _of_all(config, found)
    ]


def _sparsities(config: Config) -> list[float]:
    """Returns the share of zeros of the gate of each block."""
    count = config.integer("num_hidden_layers")
    sparse = 10 if count > 10 else 0
    found: Any = config.get("activation_sparsity_pattern", [0.95] * sparse + [0.0] * (count - sparse))
    found = found if isinstance(found, list) else [config.number("activation_sparsity_pattern")] * count
    name = "activation_sparsity_pattern"
    if len(found) != count or not all(isinstance(each, (int, float)) and 0 <= each < 1 for each in found):
        config.only(name, f"a number from 0 to 1 for each of {count} layers")
    return [float(each) for each in found]


def _of_all(config: Config, values: list[int]) -> list[int]:
    count = config.integer("num_hidden_layers")
    if len(values) != count:
        config.only("intermediate_size", f"a number for each of {count} layers")
    return values
