"""Settings of BERT and its relatives, as arguments of models."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config


def encoder_options(config: Config, activation="gelu"):
    """The options that models of BERT's kind share: dict. A decoder is refused.

    Args:
        config: `Config`.
        activation: str: transformers' name of the one that a config means which has none.
    """
    config.only("is_decoder", False)
    return {
        "vocabulary_size": config.integer("vocab_size"),
        "activation": config.activation(default=activation),
        "dropout": config.number("hidden_dropout_prob", 0.1),
        "attention_dropout": config.number("attention_probs_dropout_prob", 0.1),
        "layer_norm_epsilon": config.number("layer_norm_eps", 1e-12),
    }
