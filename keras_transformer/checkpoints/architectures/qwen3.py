"""Qwen3, as transformers' `Qwen3Model` and its heads."""

from keras_transformer.checkpoints.architectures.llama import (
    Llama,
    gated_decoder_entries,
    grouped_heads,
    head_width,
    options,
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
            **options(config),
        )

    def entries(self, config):
        bias = config.flag("attention_bias", False)
        return gated_decoder_entries(config, bias=bias, output_bias=bias, norms=True)
