"""Gemma, Gemma 2 and Gemma 3."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.gguf.architecture import Arrays, Place, Shapes
from keras_transformer.checkpoints.gguf.architectures.llama import (
    DECODER_NUMBERS,
    DECODER_PLACES,
    DECODER_SETTINGS,
    Decoder,
    rope_settings,
)
from keras_transformer.checkpoints.gguf.layouts import PlusOne, Same
from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.utils.types import JsonObject


class Gemma(Decoder):
    """Gemma 1. The scales of norms are stored with the 1 that transformers adds."""

    name = "gemma"
    model_types = ("gemma",)
    head = "GemmaForCausalLM"

    def layout(self, place: Place, suffix: str, config: Config) -> Same:
        return PlusOne() if place.name.endswith("norm") else Same()


SANDWICH_PLACES = {
    **DECODER_PLACES,
    "blk.{}.post_attention_norm": Place("model.layers.{}.post_attention_layernorm"),
    "blk.{}.ffn_norm": Place("model.layers.{}.pre_feedforward_layernorm"),
    "blk.{}.post_ffw_norm": Place("model.layers.{}.post_feedforward_layernorm"),
}
WINDOW_SETTINGS = {**DECODER_SETTINGS, "sliding_window": "{arch}.attention.sliding_window"}


class Gemma2(Gemma):
    """Gemma 2: norms on both sides, a window in every other block, capped scores and logits."""

    name = "gemma2"
    model_types = ("gemma2",)
    head = "Gemma2ForCausalLM"
    settings = WINDOW_SETTINGS
    numbers = {
        **DECODER_NUMBERS,
        "attn_logit_softcapping": "{arch}.attn_logit_softcapping",
        "final_logit_softcapping": "{arch}.final_logit_softcapping",
    }
    places = SANDWICH_PLACES
    # The largest model scales queries by the share of a head, the others by its width; no file says which.
    num_layers_of_largest = 46

    def config(self, metadata: Metadata, tensors: Shapes, extra: Arrays) -> JsonObject:
        values = super().config(metadata, tensors, extra)
        is_largest = values.get("num_hidden_layers") == self.num_layers_of_largest
        if is_largest and {"hidden_size", "num_attention_heads"} <= values.keys():
            values["query_pre_attn_scalar"] = values["hidden_size"] // values["num_attention_heads"]
        elif "head_dim" in values:
            values["query_pre_attn_scalar"] = values["head_dim"]
        return values


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
