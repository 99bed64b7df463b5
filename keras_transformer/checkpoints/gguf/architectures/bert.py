"""BERT, as a model of embeddings."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.gguf.architecture import Arrays, GgufArchitecture, Place, Shapes
from keras_transformer.checkpoints.gguf.architectures.llama import vocabulary_size
from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.utils.types import JsonObject


class Bert(GgufArchitecture):
    """BERT. Files have neither its pooler nor the heads of its training."""

    name = "bert"
    model_types = ("bert",)
    head = "BertModel"
    dropped = r"^pooler\."
    settings = {
        "max_position_embeddings": "{arch}.context_length",
        "hidden_size": "{arch}.embedding_length",
        "num_hidden_layers": "{arch}.block_count",
        "intermediate_size": "{arch}.feed_forward_length",
        "num_attention_heads": "{arch}.attention.head_count",
    }
    numbers = {"layer_norm_eps": "{arch}.attention.layer_norm_epsilon"}
    places = {
        "token_embd": Place("embeddings.word_embeddings"),
        "token_types": Place("embeddings.token_type_embeddings"),
        "position_embd": Place("embeddings.position_embeddings"),
        "token_embd_norm": Place("embeddings.LayerNorm"),
        "blk.{}.attn_q": Place("encoder.layer.{}.attention.self.query"),
        "blk.{}.attn_k": Place("encoder.layer.{}.attention.self.key"),
        "blk.{}.attn_v": Place("encoder.layer.{}.attention.self.value"),
        "blk.{}.attn_output": Place("encoder.layer.{}.attention.output.dense"),
        "blk.{}.attn_output_norm": Place("encoder.layer.{}.attention.output.LayerNorm"),
        "blk.{}.ffn_up": Place("encoder.layer.{}.intermediate.dense"),
        "blk.{}.ffn_down": Place("encoder.layer.{}.output.dense"),
        "blk.{}.layer_output_norm": Place("encoder.layer.{}.output.LayerNorm"),
    }

    def config(self, metadata: Metadata, tensors: Shapes, extra: Arrays) -> JsonObject:
        values = super().config(metadata, tensors, extra) | {"vocab_size": vocabulary_size(metadata, tensors)}
        return values | {"type_vocab_size": tensors.get("token_types.weight", (2,))[0]}

    def metadata(self, config: Config) -> JsonObject:
        segments = config.integer("type_vocab_size", 2)
        causal = {f"{self.name}.attention.causal": False}
        return super().metadata(config) | causal | {"tokenizer.ggml.token_type_count": segments}
