"""Qwen3.5, its text model: transformers' `Qwen3_5TextModel` and its language model."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import (
    decoder_entries,
    decoder_options,
    gated_feedforward_entries,
    norm_entries,
)
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.recurrent.qwen3_next import (
    Qwen3Next,
    hybrid_entries,
    hybrid_mixers,
)
from keras_transformer.checkpoints.mapping import Entry, fused_linear, linear
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import ZeroCenteredRMSNormalization
from keras_transformer.models.text.decoders.decoder import Decoder


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
