"""Settings of BART and its relatives, as arguments of models."""

from __future__ import annotations

from typing import Any

from keras_transformer import models
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.encoder_decoder_mapping import SIDES


def sizes(config: Config) -> dict[str, Any]:
    """Returns the sizes of encoder and decoder, as arguments of a model."""
    encoder, decoder = (
        models.Size(
            config.integer(f"{side}_layers"),
            config.integer("d_model"),
            config.integer(f"{side}_attention_heads"),
            config.integer(f"{side}_ffn_dim"),
        )
        for side in SIDES
    )
    return {"size": encoder, "decoder_size": decoder, "vocabulary_size": config.integer("vocab_size")}


def options(config: Config, scales_embeddings: bool) -> dict[str, Any]:
    """Returns the other settings of the family, as arguments of a model."""
    config.only("is_decoder", False)
    return {
        "scale_embeddings": config.flag("scale_embedding", scales_embeddings),
        "activation": config.activation("activation_function"),
        "dropout": config.number("dropout", 0.1),
        "attention_dropout": config.number("attention_dropout", 0.0),
        "hidden_dropout": config.number("activation_dropout", 0.0),
    }
