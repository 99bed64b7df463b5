"""Qwen 3."""

from __future__ import annotations

from keras_transformer.checkpoints.gguf.architecture import Place
from keras_transformer.checkpoints.gguf.architectures.llama import DECODER_PLACES, Decoder


class Qwen3(Decoder):
    """Qwen 3: norms of queries and keys."""

    name = "qwen3"
    model_types = ("qwen3",)
    head = "Qwen3ForCausalLM"
    places = {
        **DECODER_PLACES,
        "blk.{}.attn_q_norm": Place("model.layers.{}.self_attn.q_norm"),
        "blk.{}.attn_k_norm": Place("model.layers.{}.self_attn.k_norm"),
    }
