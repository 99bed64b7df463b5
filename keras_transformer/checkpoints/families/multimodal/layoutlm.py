"""LayoutLM: transformers\' `LayoutLMModel` and its heads."""

from __future__ import annotations

import keras

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
from keras_transformer.checkpoints.building.heads import pooled
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, linear, same
from keras_transformer.models import LayoutLM

_POOLER = "{prefix}pooler.dense"
_BOXES = {"x": "x", "y": "y", "h": "height", "w": "width"}


def _dropout(config: Config) -> float:
    return config.number("hidden_dropout_prob", 0.1)


class Layoutlm(Architecture):
    """LayoutLM: Xu et al., arXiv 1912.13318."""

    base_prefix = "layoutlm."
    ignored = (r"embeddings\.position_ids$",)
    tied = {
        "cls.predictions.decoder.weight": "layoutlm.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    heads = {
        "Model": Head(pooled, lambda config, prefix: linear(_POOLER.format(prefix=prefix), "pooler")),
        "MaskedLM": masked_language_head(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.bias",
        ),
        "SequenceClassification": sequence_head(_POOLER, "classifier", dropout=_dropout),
        "TokenClassification": token_head(),
        "QuestionAnswering": span_head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        config.only("position_embedding_type", "absolute")
        return LayoutLM(
            model_size(config),
            max_sequence_length=config.integer("max_position_embeddings"),
            num_box_coordinates=config.integer("max_2d_position_embeddings", 1024),
            num_segments=config.integer("type_vocab_size"),
            **encoder_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        boxes = [
            same(f"embeddings.{theirs}_position_embeddings.weight", f"box_position/{ours}")
            for theirs, ours in _BOXES.items()
        ]
        return [*embedding_entries(), *boxes, *encoder_entries(config)]
