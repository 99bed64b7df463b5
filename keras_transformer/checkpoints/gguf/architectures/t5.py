"""T5, version 1.1 and Flan-T5 too."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.gguf.architecture import Arrays, GgufArchitecture, Place, Shapes
from keras_transformer.checkpoints.gguf.architectures.llama import vocabulary_size
from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.utils.types import JsonObject

_GATED = "gated-gelu"
_ATTENTIONS = {
    "enc": [("attn", "SelfAttention")],
    "dec": [("attn", "SelfAttention"), ("cross_attn", "EncDecAttention")],
}


def _side(short: str, name: str) -> dict[str, Place]:
    """The places of the encoder or the decoder."""
    places = {f"{short}.output_norm": Place(f"{name}.final_layer_norm")}
    for number, (theirs, ours) in enumerate(_ATTENTIONS[short]):
        layer = f"{name}.block.{{}}.layer.{number}"
        places |= {f"{short}.blk.{{}}.{theirs}_{each}": Place(f"{layer}.{ours}.{each}") for each in "qkvo"}
        places[f"{short}.blk.{{}}.{theirs}_norm"] = Place(f"{layer}.layer_norm")
        places[f"{short}.blk.{{}}.{theirs}_rel_b"] = Place(f"{layer}.{ours}.relative_attention_bias")
    layer = f"{name}.block.{{}}.layer.{len(_ATTENTIONS[short])}"
    for theirs, ours in (("ffn_gate", "wi_0"), ("ffn_up", "wi_1"), ("ffn_down", "wo")):
        places[f"{short}.blk.{{}}.{theirs}"] = Place(f"{layer}.DenseReluDense.{ours}")
    return places | {f"{short}.blk.{{}}.ffn_norm": Place(f"{layer}.layer_norm")}


class T5(GgufArchitecture):
    """T5. A gated feed-forward network is version 1.1, whose head is not tied."""

    name = "t5"
    model_types = ("t5", "mt5")
    head = "T5ForConditionalGeneration"
    settings = {
        "n_positions": "{arch}.context_length",
        "d_model": "{arch}.embedding_length",
        "d_ff": "{arch}.feed_forward_length",
        "num_layers": "{arch}.block_count",
        "num_decoder_layers": "{arch}.decoder_block_count",
        "num_heads": "{arch}.attention.head_count",
        "d_kv": "{arch}.attention.key_length",
        "relative_attention_num_buckets": "{arch}.attention.relative_buckets_count",
    }
    numbers = {"layer_norm_epsilon": "{arch}.attention.layer_norm_epsilon"}
    places = {
        "token_embd": Place("shared"),
        "output": Place("lm_head"),
        **_side("enc", "encoder"),
        **_side("dec", "decoder"),
    }

    def config(self, metadata: Metadata, tensors: Shapes, extra: Arrays) -> JsonObject:
        values = super().config(metadata, tensors, extra) | {"vocab_size": vocabulary_size(metadata, tensors)}
        is_gated = any("ffn_gate" in name for name in tensors)
        values["feed_forward_proj"] = _GATED if is_gated else "relu"
        values["decoder_start_token_id"] = metadata.integer("{arch}.decoder_start_token_id", 0)
        return values | {"tie_word_embeddings": "output.weight" not in tensors}

    def place(self, name: str, config: Config) -> Place:
        place = super().place(name, config)
        is_gated = config.get("feed_forward_proj", "relu") == _GATED
        return place if is_gated else place._replace(name=place.name.replace(".wi_1.", ".wi."))

    def metadata(self, config: Config) -> JsonObject:
        width = config.integer("d_kv", 64)
        epsilon = config.number("layer_norm_epsilon", 1e-6)
        defaults = {
            "context_length": config.integer("n_positions", 512),
            "decoder_block_count": config.integer("num_decoder_layers", config.integer("num_layers")),
            "decoder_start_token_id": config.integer("decoder_start_token_id", 0, minimum=0),
            "attention.key_length": width,
            "attention.value_length": width,
            "attention.layer_norm_epsilon": epsilon,
            "attention.layer_norm_rms_epsilon": epsilon,
            "attention.relative_buckets_count": config.integer("relative_attention_num_buckets", 32),
        }
        return {f"{self.name}.{key}": value for key, value in defaults.items()} | super().metadata(config)
