"""SmolLM3: transformers' `SmolLM3Model` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import decoder_options, head_width, layer_windows
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, rotary_attention
from keras_transformer.models.text.decoders.decoder import Decoder


class SmolLM3(Llama):
    """SmolLM3: Bakouch et al., 2025: Llama with blocks without positions (NoPE, Yang et al., arXiv 2501.18795)."""

    heads = decoder_heads(tied=True, names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        size, options = model_size(config), decoder_options(config)
        rotates = _rotates(config)
        # transformers' default of "num_key_value_heads" is 4; a null is one for each head.
        groups = size.num_heads if "num_key_value_heads" in config.values else 4
        width = config.integer("sliding_window", None) if config.flag("use_sliding_window", False) else None
        types = ["full_attention" if rotated or width is None else "sliding_attention" for rotated in rotates]
        grouped = GroupedSize(size, config.integer("num_key_value_heads", groups), head_width(config))
        position = rotary(config, head_width(config), theta=2e6)
        dropout, use_bias = options["attention_dropout"], config.flag("attention_bias", False)
        return Decoder(
            size,
            config.integer("vocab_size"),
            position=None,
            norm=RMSNormalization(epsilon=options["rms_norm_epsilon"]),
            attention=[
                rotary_attention(
                    grouped, position if rotated else None, window=window, dropout=dropout, use_bias=use_bias
                )
                for rotated, window in zip(rotates, layer_windows(config, width, types), strict=True)
            ],
            feedforward=GatedFeedForward(
                size.intermediate_dim, options["activation"], use_bias=config.flag("mlp_bias", False)
            ),
            name="smollm3",
        )


def _rotates(config: Config) -> list[bool]:
    """Returns whether each block has positions: all but every fourth, unless the config says otherwise."""
    count = config.integer("num_hidden_layers")
    interval = config.integer("no_rope_layer_interval", 4)
    flags = config.get("no_rope_layers", [int((index + 1) % interval != 0) for index in range(count)])
    if not isinstance(flags, list) or len(flags) < count or any(flag not in (0, 1) for flag in flags):
        config.only("no_rope_layers", f"0 or 1 for each of {count} layers")
    return [bool(flag) for flag in flags[:count]]
