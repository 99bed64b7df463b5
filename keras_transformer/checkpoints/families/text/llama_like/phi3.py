"""Phi-3 and Phi-4-mini: transformers' `Phi3Model` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.building.decoders import decoder_entries, decoder_options, head_width, norm_entries
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama, window
from keras_transformer.checkpoints.mapping import Entry, fused_linear, linear
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models.building.rotary_attention import GroupedSize, rotary_attention
from keras_transformer.models.text.decoders.decoder import Decoder


class Phi3(Llama):
    """Phi-3: Abdin et al., arXiv 2404.14219, with LongRoPE.

    Generation is limited to "original_max_position_embeddings" tokens, where LongRoPE changes its factors: keys in the cache
    would keep the old ones. Longer texts are read whole as transformers reads them.
    """

    heads = decoder_heads(names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        size, options = model_size(config), decoder_options(config, rms_norm_epsilon=1e-5)
        attention = rotary_attention(
            GroupedSize(size, config.integer("num_key_value_heads", size.num_heads), head_width(config)),
            rotary(config, head_width(config), names=_OLD_NAMES),
            window=window(config),
            dropout=options["attention_dropout"],
        )
        return Decoder(
            size,
            config.integer("vocab_size"),
            position=None,
            norm=RMSNormalization(epsilon=options["rms_norm_epsilon"]),
            attention=attention,
            feedforward=GatedFeedForward(size.intermediate_dim, options["activation"]),
            dropout=config.number("resid_pdrop", 0.0),
            embedding_dropout=config.number("embd_pdrop", 0.0),
            name="phi3",
        )

    def entries(self, config: Config) -> list[Entry]:
        def block(theirs: str, ours: str) -> list[Entry]:
            attention, own, fed = f"{theirs}.self_attn", f"{ours}/self_attention", f"{ours}/feedforward"
            return [
                *norm_entries(theirs, ours),
                *fused_linear(f"{attention}.qkv_proj", [f"{own}/{n}" for n in ("query", "key", "value")], bias=False),
                *linear(f"{attention}.o_proj", f"{own}/attention_output", inputs=2, bias=False),
                *fused_linear(f"{theirs}.mlp.gate_up_proj", [f"{fed}/gate", f"{fed}/hidden"], bias=False),
                *linear(f"{theirs}.mlp.down_proj", f"{fed}/output", bias=False),
            ]

        return decoder_entries(config, block)


# Names of LongRoPE in the first configs.
_OLD_NAMES = {"su": "longrope", "yarn": "longrope"}
