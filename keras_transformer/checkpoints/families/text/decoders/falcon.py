"""Falcon: transformers' `FalconModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention
from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.families.text.decoders.gpt_neox import fused_heads
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, norm
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models import Decoder, Size
from keras_transformer.positions import ALiBi

# The names of the norms before attention and feed-forward; None: one for both.
_NORMS = {
    None: ("input_layernorm", "post_attention_layernorm"),
    "one_norm": ("input_layernorm", None),
    "two_norms": ("ln_attn", "ln_mlp"),
}


class Falcon(Architecture):
    """Falcon: Almazrouei et al., arXiv 2311.16867: multi-query or grouped heads, and parallel blocks."""

    base_prefix = "transformer."
    tied = {"lm_head.weight": "transformer.word_embeddings.weight"}
    heads = decoder_heads(tied=True, names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
        width, bias = hidden // heads, config.flag("bias", False)
        size = Size(config.integer("num_hidden_layers"), hidden, heads, config.integer("ffn_hidden_size", 4 * hidden))
        has_alibi = config.flag("alibi", False)
        return Decoder(
            size,
            config.integer("vocab_size"),
            position=None,
            norm=LayerNormalization(epsilon=config.number("layer_norm_epsilon", 1e-5)),
            attention=MultiHeadAttention(
                heads,
                width,
                num_key_value_heads=_num_key_value_heads(config, heads),
                use_bias=bias,
                mechanism=SoftmaxAttention(dropout=config.number("attention_dropout", 0.0)),
                # The biases are added before the scores are scaled.
                position=ALiBi(scale=width**-0.5) if has_alibi else rotary(config, width),
            ),
            feedforward=DenseFeedForward(size.intermediate_dim, config.activation("activation"), use_bias=bias),
            dropout=config.number("hidden_dropout", 0.0),
            embedding_dropout=0.0,
            parallel=_parallel(config),
            name="falcon",
        )

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("bias", False)
        entries = [*embedding("word_embeddings", "token_embedding"), *norm("ln_f", "final_norm")]
        first, second = _NORMS[_parallel(config)]
        for index in range(config.integer("num_hidden_layers")):
            theirs, ours = f"h.{index}", f"decoder_block_{index}"
            attention = f"{ours}/self_attention"
            entries += [
                *norm(f"{theirs}.{first}", f"{ours}/mixer_residual/norm"),
                *([] if second is None else norm(f"{theirs}.{second}", f"{ours}/feedforward_residual/norm")),
                *fused_heads(f"{theirs}.self_attention.query_key_value", attention, bias=bias),
                *linear(f"{theirs}.self_attention.dense", f"{attention}/attention_output", inputs=2, bias=bias),
                *linear(f"{theirs}.mlp.dense_h_to_4h", f"{ours}/feedforward/hidden", bias=bias),
                *linear(f"{theirs}.mlp.dense_4h_to_h", f"{ours}/feedforward/output", bias=bias),
            ]
        return entries


def _is_new(config: Config) -> bool:
    return config.flag("new_decoder_architecture", False)


def _parallel(config: Config) -> str | None:
    """Returns the `parallel` of `models.Decoder`."""
    if not _is_new(config):
        return "one_norm" if config.flag("parallel_attn", True) else None
    config.only("parallel_attn", True)
    return "two_norms" if config.integer("num_ln_in_parallel_attn", 2) == 2 else "one_norm"


def _num_key_value_heads(config: Config, heads: int) -> int:
    if not _is_new(config) and config.flag("multi_query", True):
        return 1
    # transformers reads "num_kv_heads" of the other kind, too, but its matrix then has a key for each head.
    return config.integer("num_kv_heads", heads) if _is_new(config) else heads
