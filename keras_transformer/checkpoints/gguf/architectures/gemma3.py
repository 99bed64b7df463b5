"""Gemma 3, its text model."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.gguf.architecture import Arrays, Place, Shapes
from keras_transformer.checkpoints.gguf.architectures.gemma2 import SANDWICH_PLACES, WINDOW_SETTINGS, Gemma2
from keras_transformer.checkpoints.gguf.architectures.llama import DECODER_NUMBERS, rope_settings
from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.utils.types import JsonObject


class Gemma3(Gemma2):
    """Gemma 3: norms of queries and keys, and a window in five of six blocks, with positions of their own."""

    name = "gemma3"
    model_types = ("gemma3_text",)
    head = "Gemma3ForCausalLM"
    settings = WINDOW_SETTINGS
    numbers = {
        **DECODER_NUMBERS,
        "rope_local_base_freq": "{arch}.rope.freq_base_swa",
        "final_logit_softcapping": "{arch}.final_logit_softcapping",
    }
    places = {
        **SANDWICH_PLACES,
        "blk.{}.attn_q_norm": Place("model.layers.{}.self_attn.q_norm"),
        "blk.{}.attn_k_norm": Place("model.layers.{}.self_attn.k_norm"),
    }
    num_layers_of_largest = 62

    def config(self, metadata: Metadata, tensors: Shapes, extra: Arrays) -> JsonObject:
        values = super().config(metadata, tensors, extra)
        period = "{arch}.attention.sliding_window_pattern"
        if period in metadata:
            values["sliding_window_pattern"] = metadata.integer(period)
        return values

    def metadata(self, config: Config) -> JsonObject:
        local = rope_settings(config, "sliding_attention") if "rope_parameters" in config else {}
        theta = local.get("rope_theta", config.number("rope_local_base_freq", 10000.0))
        return super().metadata(config) | {f"{self.name}.rope.freq_base_swa": float(theta)}
