"""BERT: transformers\' `BertModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.encoders import (
    embedding_entries,
    encoder_entries,
    encoder_options,
    masked_language_head,
    pretraining_head,
    sequence_head,
    span_head,
    token_head,
)
from keras_transformer.checkpoints.building.heads import pooled
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, linear
from keras_transformer.models import BERT

_POOLER = "{prefix}pooler.dense"
_MASKED = (
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.bias",
)


class Bert(Architecture):
    """BERT: Devlin et al., arXiv 1810.04805."""

    base_prefix = "bert."
    ignored = (r"embeddings\.position_ids$",)
    tied = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    heads = {
        "Model": Head(pooled, lambda config, prefix: linear(_POOLER.format(prefix=prefix), "pooler")),
        "MaskedLM": masked_language_head(*_MASKED),
        "PreTraining": pretraining_head(masked_language_head(*_MASKED), _POOLER, "cls.seq_relationship"),
        "NextSentencePrediction": sequence_head(
            _POOLER, "cls.seq_relationship", dropout=lambda config: 0.0, num_classes=2
        ),
        "SequenceClassification": sequence_head(_POOLER, "classifier"),
        "MultipleChoice": sequence_head(_POOLER, "classifier", choice=True),
        "TokenClassification": token_head(),
        "QuestionAnswering": span_head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        config.only("position_embedding_type", "absolute")
        return BERT(
            model_size(config),
            max_sequence_length=config.integer("max_position_embeddings"),
            num_segments=config.integer("type_vocab_size"),
            **encoder_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        return [
            *embedding_entries(),
            *encoder_entries(config),
        ]
