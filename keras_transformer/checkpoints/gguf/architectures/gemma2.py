"""Gemma 2."""

from __future__ import annotations

from keras_transformer.checkpoints.gguf.architecture import Arrays, Place, Shapes
from keras_transformer.checkpoints.gguf.architectures.gemma import Gemma
from keras_transformer.checkpoints.gguf.architectures.llama import DECODER_NUMBERS, DECODER_PLACES, DECODER_SETTINGS
from keras_transformer.checkpoints.gguf.metadata import Metadata
from keras_transformer.utils.types import JsonObject

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
