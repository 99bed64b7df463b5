"""BLOOM: transformers\' `BloomModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.building.heads import decoder_heads
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import HeadByHead
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, norm
from keras_transformer.models import BLOOM, Size


class Bloom(Architecture):
    """BLOOM: Scao et al., arXiv 2211.05100."""

    base_prefix = "transformer."
    tied = {"lm_head.weight": "transformer.word_embeddings.weight"}
    heads = decoder_heads(tied=True, tagger="classifier")

    def backbone(self, config: Config) -> keras.Model:
        behind_norm = config.flag("apply_residual_connection_post_layernorm", False)
        width = _width(config)
        return BLOOM(
            Size(_num_layers(config), width, _setting(config, "n_head", "num_attention_heads"), 4 * width),
            config.integer("vocab_size"),
            dropout=config.number("hidden_dropout", 0.0),
            attention_dropout=config.number("attention_dropout", 0.0),
            layer_norm_epsilon=config.number("layer_norm_epsilon", 1e-5),
            residual="normalized_skip" if behind_norm else "pre",
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [
            *embedding("word_embeddings", "token_embedding"),
            *norm("word_embeddings_layernorm", "embedding_norm"),
            *norm("ln_f", "final_norm"),
        ]
        for index in range(_num_layers(config)):
            theirs, ours = f"h.{index}", f"decoder_block_{index}"
            entries += [
                *norm(f"{theirs}.input_layernorm", f"{ours}/mixer_residual/norm"),
                *_fused(f"{theirs}.self_attention.query_key_value", f"{ours}/self_attention"),
                *linear(f"{theirs}.self_attention.dense", f"{ours}/self_attention/attention_output", inputs=2),
                *norm(f"{theirs}.post_attention_layernorm", f"{ours}/feedforward_residual/norm"),
                *linear(f"{theirs}.mlp.dense_h_to_4h", f"{ours}/feedforward/hidden"),
                *linear(f"{theirs}.mlp.dense_4h_to_h", f"{ours}/feedforward/output"),
            ]
        return entries


def _fused(theirs: str, ours: str) -> list[Entry]:
    """Returns the mapping of queries, keys and values, interleaved by head in one matrix."""
    return [
        Entry((f"{theirs}.{their}",), tuple(f"{ours}/{part}/{our}" for part in ("query", "key", "value")), HeadByHead())
        for their, our in (("weight", "kernel"), ("bias", "bias"))
    ]


def _num_layers(config: Config) -> int:
    return _setting(config, "n_layer", "num_hidden_layers")


def _width(config: Config) -> int:
    return _setting(config, "n_embed", "hidden_size")


def _setting(config: Config, name: str, other: str) -> int:
    """Returns an integer that old configs have under another name."""
    return config.integer(name if name in config else other)
