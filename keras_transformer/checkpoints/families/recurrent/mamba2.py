"""Mamba-2: transformers' `Mamba2Model` and its head."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Transposed
from keras_transformer.checkpoints.mapping import Entry, embedding, fused_linear, linear, rms_norm, same
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models import Decoder, Size
from keras_transformer.recurrence import Mamba2 as Mamba2Mixer


class Mamba2(Architecture):
    """Mamba-2: Dao and Gu, arXiv 2405.21060: blocks without a feed-forward."""

    base_prefix = "backbone."
    tied = {"lm_head.weight": "backbone.embeddings.weight"}
    heads = decoder_heads(names=("CausalLM",))

    def backbone(self, config: Config) -> keras.Model:
        heads, groups = config.integer("num_heads", 128), config.integer("n_groups", 8)
        width, head_width = config.integer("hidden_size", 4096), config.integer("head_dim", 64)
        if heads % groups:
            config.only("n_groups", f"a divisor of {heads}, the number of heads")
        if width * config.number("expand", 2) != heads * head_width:
            config.only("expand", heads * head_width / width)
        _check_steps(config)
        epsilon = config.number("layer_norm_epsilon", 1e-5)
        mixer = Mamba2Mixer(
            heads,
            head_width,
            config.integer("state_size", 128),
            num_groups=groups,
            kernel_size=config.integer("conv_kernel", 4, minimum=2),
            use_bias=config.flag("use_bias", False),
            use_convolution_bias=config.flag("use_conv_bias", True),
            activation=config.activation(default="silu"),
            epsilon=epsilon,
        )
        return Decoder(
            Size(config.integer("num_hidden_layers"), width, 1, width),  # Heads are those of the mixer.
            config.integer("vocab_size"),
            position=None,
            norm=RMSNormalization(epsilon=epsilon),
            attention=mixer,
            feedforward=None,
            dropout=0.0,
            name="mamba2",
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [*embedding("embeddings", "token_embedding"), *rms_norm("norm_f", "final_norm")]
        for index in range(config.integer("num_hidden_layers")):
            theirs, ours = f"layers.{index}", f"decoder_block_{index}"
            entries += rms_norm(f"{theirs}.norm", f"{ours}/mixer_residual/norm")
            entries += _mixer_entries(config, f"{theirs}.mixer", f"{ours}/self_attention")
        return entries


def _mixer_entries(config: Config, theirs: str, ours: str) -> list[Entry]:
    bias, parts = config.flag("use_bias", False), ("gate", "value", "key", "query", "step")
    entries = [
        *fused_linear(f"{theirs}.in_proj", [f"{ours}/{part}" for part in parts], bias=bias),
        *linear(f"{theirs}.out_proj", f"{ours}/output", bias=bias),
        Entry((f"{theirs}.conv1d.weight",), (f"{ours}/convolution/kernel",), Transposed((1, 2, 0))),
        same(f"{theirs}.A_log", f"{ours}/decay/log_speed"),
        same(f"{theirs}.dt_bias", f"{ours}/decay/step_bias"),
        same(f"{theirs}.D", f"{ours}/skip"),
        same(f"{theirs}.norm.weight", f"{ours}/norm_scale"),
    ]
    if config.flag("use_conv_bias", True):
        entries.append(same(f"{theirs}.conv1d.bias", f"{ours}/convolution/bias"))
    return entries


def _check_steps(config: Config) -> None:
    """Raises `ConfigError` if steps are limited, which transformers does for whole sequences, but not token by token."""
    limit = config.get("time_step_limit", [0.0, float("inf")])
    largest = limit[1] if isinstance(limit, list) and len(limit) == 2 and limit[0] == 0 else None
    if largest != float("inf") and largest != {"__float__": "Infinity"}:
        config.only("time_step_limit", [0.0, float("inf")])
