"""Qwen2 and 2.5, as transformers' `Qwen2Model` and its heads."""

from keras_transformer.checkpoints.architectures.llama import (
    Llama,
    attention_entries,
    decoder_entries,
    gated_entries,
    grouped_heads,
    head_width,
    norm_entries,
    size,
    window_of_each_layer,
)
from keras_transformer.checkpoints.rotary import rotary
from keras_transformer.models import Qwen2 as Qwen2Model


class Qwen2(Llama):
    """Qwen2: Yang et al., arXiv 2407.10671."""

    def backbone(self, config):
        return Qwen2Model(
            size(config),
            config.integer("vocab_size"),
            **grouped_heads(config, num_key_value_heads=32),
            window=windows(config),
            position=rotary(config, head_width(config)),
            activation=config.activation(default="silu"),
            attention_dropout=config.number("attention_dropout", 0.0),
            rms_norm_epsilon=config.number("rms_norm_eps", 1e-6),
        )

    def entries(self, config):
        return decoder_entries(
            config,
            lambda theirs, ours: [
                *norm_entries(theirs, ours),
                *attention_entries(theirs, ours, bias=True),
                *gated_entries(theirs, ours),
            ],
        )


def windows(config):
    """The window of each block: from "max_window_layers" on, where the config asks for windows."""
    width = config.integer("sliding_window", 4096) if config.flag("use_sliding_window", False) else None
    first = config.integer("max_window_layers", 28, minimum=0)
    types = [
        "sliding_attention" if width is not None and index >= first else "full_attention"
        for index in range(config.integer("num_hidden_layers"))
    ]
    return window_of_each_layer(config, width, types)
