"""RoBERTa, CamemBERT and XLM-RoBERTa: transformers\' `RobertaModel` and its heads."""

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
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.mapping import Entry, linear
from keras_transformer.models import RoBERTa

_POOLER = "{prefix}pooler.dense"


class Roberta(Architecture):
    """RoBERTa: Liu et al., arXiv 1907.11692; its tokens on its own data: arXiv 1911.03894 and 1911.02116.

    Positions count the tokens of the mask, so that rows may be padded on either side. transformers counts the tokens that
    are not the padding token.
    """

    base_prefix = "roberta."
    ignored = (r"embeddings\.position_ids$",)
    tied = {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    heads = {
        "Model": Head(pooled, lambda config, prefix: linear(_POOLER.format(prefix=prefix), "pooler")),
        "MaskedLM": masked_language_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", activation="gelu"),
        "SequenceClassification": sequence_head("classifier.dense", "classifier.out_proj"),
        "MultipleChoice": sequence_head(
            _POOLER, "classifier", dropout=lambda config: config.number("hidden_dropout_prob", 0.1), choice=True
        ),
        "TokenClassification": token_head(),
        "QuestionAnswering": span_head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        config.only("position_embedding_type", "absolute")
        return RoBERTa(
            model_size(config),
            max_sequence_length=num_positions(config),
            num_segments=config.integer("type_vocab_size"),
            padding_id=config.integer("pad_token_id", 1, minimum=0),
            positions_from_mask=True,
            **encoder_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        return [*embedding_entries(), *encoder_entries(config)]


def num_positions(config: Config) -> int:
    """How many tokens a text may have: the rows of the table of positions behind that of padding."""
    rows, padding_id = config.integer("max_position_embeddings"), config.integer("pad_token_id", 1, minimum=0)
    if rows < padding_id + 2:
        raise ConfigError(
            f"{config.source}: 'max_position_embeddings' is {rows}; positions begin at {padding_id + 1}, behind padding."
        )
    return rows - padding_id - 1
