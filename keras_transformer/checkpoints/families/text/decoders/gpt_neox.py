"""GPT-NeoX and Pythia: transformers' `GPTNeoXModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention
from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import HeadByHead
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, norm
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models import Decoder


class GptNeoX(Architecture):
    """GPT-NeoX: Black et al., arXiv 2204.06745; Pythia: Biderman et al., arXiv 2304.01373."""

    remark = "Pythia"
    base_prefix = "gpt_neox."
    ignored = (r"\.attention\.(masked_)?bias$", r"rotary_emb\.inv_freq$")
    tied = {"embed_out.weight": "gpt_neox.embed_in.weight"}
    heads = decoder_heads(lm_head="embed_out", names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        size, dropout = model_size(config), config.number("hidden_dropout", 0.0)
        width = size.hidden_dim // size.num_heads
        return Decoder(
            size,
            config.integer("vocab_size"),
            position=None,
            norm=LayerNormalization(epsilon=config.number("layer_norm_eps", 1e-5)),
            attention=MultiHeadAttention(
                size.num_heads,
                width,
                use_bias=config.flag("attention_bias", True),
                mechanism=SoftmaxAttention(dropout=config.number("attention_dropout", 0.0)),
                # The defaults have the names of configs before version 5.
                position=rotary(
                    config,
                    width,
                    config.number("rotary_emb_base", 10000.0),
                    fraction=config.number("rotary_pct", 0.25),
                ),
            ),
            feedforward=DenseFeedForward(size.intermediate_dim, config.activation()),
            dropout=dropout,
            parallel="two_norms" if config.flag("use_parallel_residual", True) else None,
            name="gpt_neox",
        )

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("attention_bias", True)
        entries = [*embedding("embed_in", "token_embedding"), *norm("final_layer_norm", "final_norm")]
        for index in range(config.integer("num_hidden_layers")):
            theirs, ours = f"layers.{index}", f"decoder_block_{index}"
            attention = f"{ours}/self_attention"
            entries += [
                *norm(f"{theirs}.input_layernorm", f"{ours}/mixer_residual/norm"),
                *norm(f"{theirs}.post_attention_layernorm", f"{ours}/feedforward_residual/norm"),
                *fused_heads(f"{theirs}.attention.query_key_value", attention, bias=bias),
                *linear(f"{theirs}.attention.dense", f"{attention}/attention_output", inputs=2, bias=bias),
                *linear(f"{theirs}.mlp.dense_h_to_4h", f"{ours}/feedforward/hidden"),
                *linear(f"{theirs}.mlp.dense_4h_to_h", f"{ours}/feedforward/output"),
            ]
        return entries


def fused_heads(theirs: str, ours: str, *, bias: bool) -> list[Entry]:
    """Returns the mapping of queries, keys and values, interleaved by head or group in one matrix."""
    parts = ("query", "key", "value")
    names = (("weight", "kernel"), ("bias", "bias"))[: 1 + bias]
    return [
        Entry((f"{theirs}.{their}",), tuple(f"{ours}/{part}/{our}" for part in parts), HeadByHead())
        for their, our in names
    ]
