"""Qwen3-Next and Qwen3.5: transformers' `Qwen3NextModel`, `Qwen3_5TextModel`, and their heads."""

from __future__ import annotations

from collections.abc import Callable

import keras

from keras_transformer.checkpoints.building.decoders import (
    attention_entries,
    decoder_entries,
    decoder_options,
    gated_feedforward_entries,
    norm_entries,
)
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.families.text.mixtures_of_experts.qwen_moe import (
    Experts,
    qwen_moe,
    qwen_moe_entries,
)
from keras_transformer.checkpoints.layouts import HeadByHead, Transposed
from keras_transformer.checkpoints.mapping import Entry, fused_linear, linear, same
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import ZeroCenteredRMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, rotary_attention
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.recurrence import GatedDeltaNet

_ROTARY_FRACTION = 0.25
_HEAD_WIDTH, _NUM_EXPERTS = 256, 512


class Qwen3Next(Llama):
    """Qwen3-Next: Qwen Team, 2025: blocks of Gated DeltaNet and of gated attention, and experts beside a shared one."""

    remark = "experts"

    # Weights that predict several tokens at once, which transformers does not read either.
    ignored = (*Llama.ignored, r"^mtp\.")
    heads = decoder_heads(names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        norm = ZeroCenteredRMSNormalization(epsilon=decoder_options(config)["rms_norm_epsilon"])
        shared = config.integer("shared_expert_intermediate_size", 512)
        experts = Experts(_NUM_EXPERTS, 10, 512, shared, normalize=True)
        return qwen_moe(config, hybrid_mixers(config, norm, num_key_value_heads=2), norm, experts, name="qwen3_next")

    def entries(self, config: Config) -> list[Entry]:
        mixer_entries = hybrid_entries(config, _fused_projections)
        return qwen_moe_entries(config, _NUM_EXPERTS, shared=True, mixer_entries=mixer_entries)


def hybrid_mixers(config: Config, norm: keras.layers.Layer, num_key_value_heads: int) -> list[keras.layers.Layer]:
    """Returns the mixers of blocks of Gated DeltaNet among those of gated attention.

    Args:
        config: `Config`.
        norm: norm layer to copy for queries and keys.
        num_key_value_heads: int. The default.
    """
    heads = config.integer("linear_num_value_heads", 32)
    if heads % _key_heads(config):
        config.only("linear_num_key_heads", f"a divisor of {heads}, the number of value heads")
    recurrence = GatedDeltaNet(
        heads,
        config.integer("linear_key_head_dim", 128),
        config.integer("linear_value_head_dim", 128),
        num_key_heads=_key_heads(config),
        kernel_size=config.integer("linear_conv_kernel_dim", 4, minimum=2),
        activation=config.activation(default="silu"),
        epsilon=config.number("rms_norm_eps", 1e-6),
    )
    width = config.integer("head_dim", _HEAD_WIDTH)
    attention = rotary_attention(
        GroupedSize(model_size(config), config.integer("num_key_value_heads", num_key_value_heads), width),
        rotary(config, width, fraction=_ROTARY_FRACTION),
        dropout=decoder_options(config)["attention_dropout"],
        query_key_norm=norm,
        use_gate=True,
        use_bias=config.flag("attention_bias", False),
    )
    return [recurrence if is_recurrent else attention for is_recurrent in _recurrent_blocks(config)]


def hybrid_entries(
    config: Config, projection_entries: Callable[[Config, str, str], list[Entry]]
) -> Callable[[str, str], list[Entry]]:
    """Returns the function to the mapping of the mixer of each block, called for the blocks in their order.

    `projection_entries`: function of `(config, theirs, ours)` to the mapping of the projections of the tokens.
    """
    recurrent, bias = iter(_recurrent_blocks(config)), config.flag("attention_bias", False)

    def mixer_entries(theirs: str, ours: str) -> list[Entry]:
        if not next(recurrent):
            return attention_entries(theirs, ours, bias=bias, output_bias=bias, norms=True, gated=True)
        theirs, ours = f"{theirs}.linear_attn", f"{ours}/self_attention"
        return [
            *projection_entries(config, theirs, ours),
            *linear(f"{theirs}.out_proj", f"{ours}/output", bias=False),
            Entry((f"{theirs}.conv1d.weight",), (f"{ours}/convolution/kernel",), Transposed((1, 2, 0))),
            same(f"{theirs}.A_log", f"{ours}/decay/log_speed"),
            same(f"{theirs}.dt_bias", f"{ours}/decay/step_bias"),
            same(f"{theirs}.norm.weight", f"{ours}/norm_scale"),
        ]

    return mixer_entries


def _fused_projections(config: Config, theirs: str, ours: str) -> list[Entry]:
    """The mapping of two matrices, whose rows are ordered by key head."""
    fused = {"in_proj_qkvz": ("query", "key", "value", "gate"), "in_proj_ba": ("rate", "step")}
    layout = HeadByHead(_key_heads(config))
    return [
        Entry((f"{theirs}.{name}.weight",), tuple(f"{ours}/{part}/kernel" for part in parts), layout)
        for name, parts in fused.items()
    ]


def _key_heads(config: Config) -> int:
    return config.integer("linear_num_key_heads", 16)


def _recurrent_blocks(config: Config) -> list[bool]:
    """Returns whether each block has a recurrence; by default all but every fourth."""
    count, interval = config.integer("num_hidden_layers"), config.integer("full_attention_interval", 4)
    default = ["linear_attention" if (index + 1) % interval else "full_attention" for index in range(count)]
    known = {"linear_attention": True, "full_attention": False}
    types = config.get("layer_types", default)
    if not isinstance(types, list) or len(types) != count or not all(kind in list(known) for kind in types):
        config.only("layer_types", f"one of {sorted(known)} for each of {count} layers")
    return [known[kind] for kind in types]


class Qwen3_5Text(Qwen3Next):
    """Qwen3.5, text: Qwen Team, 2026: Qwen3-Next with dense feed-forwards.

    Its rotary positions have three axes, which are one and the same for text.
    """

    remark = "Gated DeltaNet and attention"
    heads = decoder_heads(names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        size, options = model_size(config), decoder_options(config)
        norm = ZeroCenteredRMSNormalization(epsilon=options["rms_norm_epsilon"])
        return Decoder(
            size,
            config.integer("vocab_size"),
            position=None,
            norm=norm,
            attention=hybrid_mixers(config, norm, num_key_value_heads=4),
            feedforward=GatedFeedForward(size.intermediate_dim, options["activation"]),
            name="qwen3_5_text",
        )

    def entries(self, config: Config) -> list[Entry]:
        mixer_entries = hybrid_entries(config, _projections)
        return decoder_entries(
            config,
            lambda theirs, ours: [
                *norm_entries(theirs, ours),
                *mixer_entries(theirs, ours),
                *gated_feedforward_entries(theirs, ours),
            ],
        )


def _projections(config: Config, theirs: str, ours: str) -> list[Entry]:
    entries = fused_linear(
        f"{theirs}.in_proj_qkv", [f"{ours}/{name}" for name in ("query", "key", "value")], bias=False
    )
    for their, our in (("z", "gate"), ("b", "rate"), ("a", "step")):
        entries += linear(f"{theirs}.in_proj_{their}", f"{ours}/{our}", bias=False)
    return entries
