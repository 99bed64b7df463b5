"""Settings of BERT and its relatives, as arguments of models."""

from __future__ import annotations

from typing import Any

from keras_transformer.checkpoints.config import Config


def encoder_options(config: Config, activation: str = "gelu") -> dict[str, Any]:
    """Returns the options that BERT and its relatives share. A decoder raises.

    Args:
        config: `Config`.
        activation: str. The default, by its name in transformers.
    """
    config.only("is_decoder", False)
    return {
        "vocabulary_size": config.integer("vocab_size"),
        "activation": config.activation(default=activation),
        "dropout": config.number("hidden_dropout_prob", 0.1),
        "attention_dropout": config.number("attention_probs_dropout_prob", 0.1),
        "layer_norm_epsilon": config.number("layer_norm_eps", 1e-12),
    }
