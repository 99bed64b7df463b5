"""RoFormer: transformers\' `RoFormerModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.encoders import (
    encoder_entries,
    encoder_options,
    masked_language_head,
    sequence_head,
    span_head,
    token_head,
)
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, norm
from keras_transformer.models import RoFormer


def _dropout(config: Config) -> float:
    return config.number("hidden_dropout_prob", 0.1)


class Roformer(Architecture):
    """RoFormer: Su et al., arXiv 2104.09864. Its head of multiple choice, which reads padding, is not built."""

    base_prefix = "roformer."
    # The sines and cosines of the angles.
    ignored = (r"encoder\.embed_positions\.weight$",)
    tied = {
        "cls.predictions.decoder.weight": "roformer.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    heads = {
        "Model": Head(),
        "MaskedLM": masked_language_head(
            "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
        ),
        "SequenceClassification": sequence_head(
            "classifier.dense", "classifier.out_proj", activation=lambda config: config.activation(), dropout=_dropout
        ),
        "TokenClassification": token_head(
            lambda backbone, config: tasks.Tagger(backbone, config.num_labels, dropout=_dropout(config))
        ),
        "QuestionAnswering": span_head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        return RoFormer(
            model_size(config),
            embedding_dim=config.integer("embedding_size") if _projects(config) else None,
            num_segments=config.integer("type_vocab_size"),
            rotate_values=config.flag("rotary_value", False),
            **encoder_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        return [
            *embedding("embeddings.word_embeddings", "token_embedding"),
            *embedding("embeddings.token_type_embeddings", "segment_embedding"),
            *norm("embeddings.LayerNorm", "embedding_norm"),
            *(linear("embeddings_project", "embedding_projection") if _projects(config) else []),
            *encoder_entries(config),
        ]


def _projects(config: Config) -> bool:
    width = config.integer("hidden_size")
    return config.integer("embedding_size", width) != width
