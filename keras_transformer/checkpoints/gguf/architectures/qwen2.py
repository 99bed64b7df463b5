"""Qwen 2 and 2.5."""

from __future__ import annotations

from keras_transformer.checkpoints.gguf.architectures.llama import Decoder


class Qwen2(Decoder):
    """Qwen 2: biases of queries, keys and values."""

    name = "qwen2"
    model_types = ("qwen2",)
    head = "Qwen2ForCausalLM"
