"""OPT: transformers' `OPTModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention
from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.encoder_decoders import block
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, embedding, norm
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models import Decoder, Size
from keras_transformer.positions import Learned

# Rows of the position table before position 0.
_OFFSET = 2


class Opt(Architecture):
    """OPT: Zhang et al., arXiv 2205.01068. The 350M model, whose embedding has another width, is not supported.

    With padding on the left, transformers counts positions from the first real token, here from the start of the row: pad
    on the right, or generate from prompts.
    """

    base_prefix = ("model.decoder.", "decoder.")
    tied = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
    heads = decoder_heads(tied=True, names=("CausalLM", "SequenceClassification"))

    def backbone(self, config: Config) -> keras.Model:
        width, count = config.integer("hidden_size"), config.integer("num_attention_heads")
        config.only("word_embed_proj_dim", width)
        config.only("layer_norm_elementwise_affine", True)
        config.only("_remove_final_layer_norm", False)
        size = Size(config.integer("num_hidden_layers"), width, count, config.integer("ffn_dim"))
        bias = config.flag("enable_bias", True)
        return Decoder(
            size,
            config.integer("vocab_size"),
            position=Learned(config.integer("max_position_embeddings"), offset=_OFFSET, name="position_embedding"),
            residual="pre" if config.flag("do_layer_norm_before", True) else "post",
            norm=LayerNormalization(epsilon=1e-5),
            attention=MultiHeadAttention(
                count,
                width // count,
                use_bias=bias,
                mechanism=SoftmaxAttention(dropout=config.number("attention_dropout", 0.0)),
            ),
            feedforward=DenseFeedForward(
                size.intermediate_dim, config.activation("activation_function", "relu"), use_bias=bias
            ),
            dropout=config.number("dropout", 0.1),
            name="opt",
        )

    def entries(self, config: Config) -> list[Entry]:
        bias = config.flag("enable_bias", True)
        entries = [*embedding("embed_tokens", "token_embedding"), *embedding("embed_positions", "position_embedding")]
        if config.flag("do_layer_norm_before", True):
            entries += norm("final_layer_norm", "final_norm")
        for index in range(config.integer("num_hidden_layers")):
            entries += block(f"layers.{index}", f"decoder_block_{index}", bias=bias)
        return entries
