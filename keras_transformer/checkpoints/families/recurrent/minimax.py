"""MiniMax-01: transformers' `MiniMaxModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.blocks import NormalizedSkipResidual
from keras_transformer.checkpoints.building.decoders import (
    attention_entries,
    decoder_entries,
    decoder_options,
    grouped_heads,
    head_width,
    norm_entries,
)
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import window
from keras_transformer.checkpoints.families.text.mixtures_of_experts.mixtral import Mixtral, expert_entries, router
from keras_transformer.checkpoints.layouts import HeadByHead
from keras_transformer.checkpoints.mapping import Entry, linear, same
from keras_transformer.feedforward import MixtureOfExperts
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import get_grouped_size, rotary_attention
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.recurrence import LightningAttention

_KINDS = {"linear_attention": True, "full_attention": False}


class MiniMax(Mixtral):
    """MiniMax-01: arXiv 2501.08313: blocks of lightning attention and of attention, each with experts."""

    remark = "experts"
    heads = decoder_heads(names=("CausalLM", "SequenceClassification"))
    # What transformers computes from the other settings.
    ignored = (*Mixtral.ignored, r"\.self_attn\.(slope_rate|query_decay|key_decay|diagonal_decay)$")

    def backbone(self, config: Config) -> keras.Model:
        options = decoder_options(config, rms_norm_epsilon=1e-5)
        norm = RMSNormalization(epsilon=options["rms_norm_epsilon"])
        size, activation, width = model_size(config), options["activation"], head_width(config)
        attention = rotary_attention(
            get_grouped_size(size, {}, **grouped_heads(config, num_key_value_heads=8)),
            rotary(config, width, 1e6),
            window=window(config),
            dropout=options["attention_dropout"],
        )
        mixers = [
            LightningAttention(
                size.num_heads, width, layer_index=index, num_layers=size.num_layers, activation=activation
            )
            if is_linear
            else attention
            for index, is_linear in enumerate(_linear_blocks(config))
        ]
        return Decoder(
            size,
            config.integer("vocab_size"),
            position=None,
            residual=NormalizedSkipResidual(norm, _factor(config, "alpha"), _factor(config, "beta")),
            norm=norm,
            attention=mixers,
            feedforward=MixtureOfExperts(size.intermediate_dim, router(config), activation=activation),
            name="minimax",
        )

    def entries(self, config: Config) -> list[Entry]:
        linear_blocks = iter(_linear_blocks(config))

        def block_entries(theirs: str, ours: str) -> list[Entry]:
            is_linear = next(linear_blocks)
            mixer_entries = _lightning_entries(config, theirs, ours) if is_linear else attention_entries(theirs, ours)
            return [*norm_entries(theirs, ours), *mixer_entries, *expert_entries(config, theirs, f"{ours}/feedforward")]

        return decoder_entries(config, block_entries)


def _lightning_entries(config: Config, theirs: str, ours: str) -> list[Entry]:
    theirs, ours = f"{theirs}.self_attn", f"{ours}/self_attention"
    kernels = tuple(f"{ours}/{name}/kernel" for name in ("query", "key", "value"))
    return [
        Entry((f"{theirs}.qkv_proj.weight",), kernels, HeadByHead(config.integer("num_attention_heads"))),
        *linear(f"{theirs}.output_gate", f"{ours}/gate", bias=False),
        *linear(f"{theirs}.out_proj", f"{ours}/output", bias=False),
        same(f"{theirs}.norm.weight", f"{ours}/norm_scale"),
    ]


def _linear_blocks(config: Config) -> list[bool]:
    """Returns whether each block has lightning attention; by default every second."""
    count = config.integer("num_hidden_layers")
    types = config.get("layer_types", [list(_KINDS)[(index + 1) % 2] for index in range(count)])
    if not isinstance(types, list) or len(types) != count or not all(kind in list(_KINDS) for kind in types):
        config.only("layer_types", f"one of {sorted(_KINDS)} for each of {count} layers")
    return [_KINDS[kind] for kind in types]


def _factor(config: Config, name: str) -> float:
    """Returns the factor of the residuals, which must be the same for all sublayers."""
    names = [f"{part}_{name}_factor" for part in ("mlp", "linear_attn", "full_attn")]
    factor = config.number(names[0], 1.0)
    for other in names[1:]:
        config.only(other, factor, 1.0)
    return factor
