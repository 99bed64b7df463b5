"""GPT-2."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.gguf.architecture import Arrays, GgufArchitecture, Place, Shapes
from keras_transformer.checkpoints.gguf.architectures.llama import vocabulary_size
from keras_transformer.checkpoints.gguf.layouts import Same, Transposed
from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.utils.types import JsonObject

_MATRIX = Transposed()


class Gpt2(GgufArchitecture):
    """GPT-2. transformers stores its matrices as `(inputs, outputs)`."""

    name = "gpt2"
    model_types = ("gpt2",)
    head = "GPT2LMHeadModel"
    prefix = "transformer."
    settings = {
        "n_positions": "{arch}.context_length",
        "n_embd": "{arch}.embedding_length",
        "n_layer": "{arch}.block_count",
        "n_inner": "{arch}.feed_forward_length",
        "n_head": "{arch}.attention.head_count",
    }
    numbers = {"layer_norm_epsilon": "{arch}.attention.layer_norm_epsilon"}
    places = {
        "token_embd": Place("transformer.wte"),
        "position_embd": Place("transformer.wpe"),
        "output_norm": Place("transformer.ln_f"),
        "output": Place("lm_head"),
        "blk.{}.attn_norm": Place("transformer.h.{}.ln_1"),
        "blk.{}.attn_qkv": Place("transformer.h.{}.attn.c_attn", _MATRIX),
        "blk.{}.attn_output": Place("transformer.h.{}.attn.c_proj", _MATRIX),
        "blk.{}.ffn_norm": Place("transformer.h.{}.ln_2"),
        "blk.{}.ffn_up": Place("transformer.h.{}.mlp.c_fc", _MATRIX),
        "blk.{}.ffn_down": Place("transformer.h.{}.mlp.c_proj", _MATRIX),
    }

    def config(self, metadata: Metadata, tensors: Shapes, extra: Arrays) -> JsonObject:
        return super().config(metadata, tensors, extra) | {"vocab_size": vocabulary_size(metadata, tensors)}

    def layout(self, place: Place, suffix: str, config: Config) -> Same:
        return Same() if suffix == ".bias" else place.layout

    def metadata(self, config: Config) -> JsonObject:
        inner = config.integer("n_inner", 4 * config.integer("n_embd"))
        return super().metadata(config) | {f"{self.name}.feed_forward_length": inner}
