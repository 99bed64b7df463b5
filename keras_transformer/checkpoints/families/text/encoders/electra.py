"""ELECTRA: transformers\' `ElectraModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.encoders import (
    embedding_entries,
    encoder_entries,
    encoder_options,
    masked_language_head,
    sequence_head,
    span_head,
    token_head,
)
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, linear
from keras_transformer.models import ELECTRA


def _summary_activation(config: Config) -> str:
    config.only("summary_type", "first")
    config.only("summary_use_proj", True)
    return config.activation("summary_activation")


class Electra(Architecture):
    """ELECTRA: Clark et al., arXiv 2003.10555; discriminators and generators."""

    base_prefix = "electra."
    ignored = (r"embeddings\.position_ids$",)
    tied = {"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"}
    heads = {
        "Model": Head(),
        "PreTraining": Head(
            lambda backbone, config: tasks.ReplacedTokenDetector(backbone, activation=config.activation()),
            lambda config, prefix: [
                *linear("discriminator_predictions.dense", "transform"),
                *linear("discriminator_predictions.dense_prediction", "prediction"),
            ],
        ),
        "MaskedLM": masked_language_head(
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            "generator_lm_head.bias",
            activation="gelu",
        ),
        "SequenceClassification": sequence_head("classifier.dense", "classifier.out_proj", activation="gelu"),
        "MultipleChoice": sequence_head(
            "sequence_summary.summary",
            "classifier",
            activation=_summary_activation,
            dropout=lambda config: config.number("summary_last_dropout", 0.1),
            choice=True,
        ),
        "TokenClassification": token_head(),
        "QuestionAnswering": span_head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        config.only("position_embedding_type", "absolute")
        return ELECTRA(
            model_size(config),
            embedding_dim=config.integer("embedding_size") if _projects(config) else None,
            max_sequence_length=config.integer("max_position_embeddings"),
            num_segments=config.integer("type_vocab_size"),
            **encoder_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        projection = linear("embeddings_project", "embedding_projection") if _projects(config) else []
        return [*embedding_entries(), *projection, *encoder_entries(config)]


def _projects(config: Config) -> bool:
    return config.integer("embedding_size") != config.integer("hidden_size")
