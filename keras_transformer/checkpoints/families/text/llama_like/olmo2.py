"""OLMo 2: transformers' `Olmo2Model` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import (
    attention_entries,
    decoder_entries,
    decoder_options,
    gated_feedforward_entries,
    head_width,
)
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama
from keras_transformer.checkpoints.layouts import Flat
from keras_transformer.checkpoints.mapping import Entry, rms_norm
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, rotary_attention
from keras_transformer.models.text.decoders.decoder import Decoder


class Olmo2(Llama):
    """OLMo 2: OLMo Team, arXiv 2501.00656: norms after each sublayer, and of all query and all key heads together."""

    heads = decoder_heads(names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        size, options = model_size(config), decoder_options(config, rms_norm_epsilon=1e-5)
        epsilon = options["rms_norm_epsilon"]
        attention = rotary_attention(
            GroupedSize(size, config.integer("num_key_value_heads", size.num_heads), head_width(config)),
            rotary(config, head_width(config)),
            dropout=options["attention_dropout"],
            query_key_norm=RMSNormalization(axis=[-2, -1], epsilon=epsilon),
            use_bias=config.flag("attention_bias", False),
        )
        return Decoder(
            size,
            config.integer("vocab_size"),
            position=None,
            residual="sublayer",
            norm=RMSNormalization(epsilon=epsilon),
            attention=attention,
            feedforward=GatedFeedForward(size.intermediate_dim, options["activation"]),
            name="olmo2",
        )

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("attention_bias", False)

        def block(theirs: str, ours: str) -> list[Entry]:
            attention, own = f"{theirs}.self_attn", f"{ours}/self_attention"
            return [
                *attention_entries(theirs, ours, bias=bias, output_bias=bias),
                Entry((f"{attention}.q_norm.weight",), (f"{own}/query_norm/scale",), Flat()),
                Entry((f"{attention}.k_norm.weight",), (f"{own}/key_norm/scale",), Flat()),
                *gated_feedforward_entries(theirs, ours),
                *rms_norm(f"{theirs}.post_attention_layernorm", f"{ours}/mixer_residual/norm"),
                *rms_norm(f"{theirs}.post_feedforward_layernorm", f"{ours}/feedforward_residual/norm"),
            ]

        return decoder_entries(config, block)
