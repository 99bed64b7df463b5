"""Gemma 1, and what the later versions share with it."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.gguf.architecture import Place
from keras_transformer.checkpoints.gguf.architectures.llama import Decoder
from keras_transformer.checkpoints.gguf.layouts import PlusOne, Same


class Gemma(Decoder):
    """Gemma 1. The scales of norms are stored with the 1 that transformers adds."""

    name = "gemma"
    model_types = ("gemma",)
    head = "GemmaForCausalLM"

    def layout(self, place: Place, suffix: str, config: Config) -> Same:
        return PlusOne() if place.name.endswith("norm") else Same()
