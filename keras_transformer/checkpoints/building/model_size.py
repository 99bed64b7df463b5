"""The size of a model with the setting names of BERT and Llama."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.models import Size


def model_size(config: Config) -> Size:
    """Returns the `Size` of a config."""
    return Size(
        config.integer("num_hidden_layers"),
        config.integer("hidden_size"),
        config.integer("num_attention_heads"),
        config.integer("intermediate_size"),
    )
