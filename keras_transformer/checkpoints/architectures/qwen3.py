"""Qwen3, as transformers' `Qwen3Model` and its heads."""

from keras_transformer.checkpoints.architectures.llama import (
    Llama,
    attention_entries,
    decoder_entries,
    gated_entries,
    grouped_heads,
    head_width,
    norm_entries,
    size,
)
from keras_transformer.checkpoints.architectures.qwen2 import windows
from keras_transformer.checkpoints.rotary import rotary
from keras_transformer.models import Qwen3 as Qwen3Model

_HEAD_WIDTH = 128


class Qwen3(Llama):
    """Qwen3: Yang et al., arXiv 2505.09388."""

    def backbone(self, config):
        return Qwen3Model(
            size(config),
            config.integer("vocab_size"),
            **grouped_heads(config, num_key_value_heads=32, key_dim=_HEAD_WIDTH),
            window=windows(config),
            position=rotary(config, head_width(config, _HEAD_WIDTH)),
            use_attention_bias=config.flag("attention_bias", False),
            activation=config.activation(default="silu"),
            attention_dropout=config.number("attention_dropout", 0.0),
            rms_norm_epsilon=config.number("rms_norm_eps", 1e-6),
        )

    def entries(self, config):
        bias = config.flag("attention_bias", False)
        return decoder_entries(
            config,
            lambda theirs, ours: [
                *norm_entries(theirs, ours),
                *attention_entries(theirs, ours, bias=bias, output_bias=bias, norms=True),
                *gated_entries(theirs, ours),
            ],
        )
