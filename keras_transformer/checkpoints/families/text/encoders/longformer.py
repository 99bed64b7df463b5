"""Longformer: transformers\' `LongformerModel` and its heads."""

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
from keras_transformer.checkpoints.config import Config, shown
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.families.text.encoders.roberta import num_positions
from keras_transformer.checkpoints.mapping import Entry, linear
from keras_transformer.models import Longformer

_POOLER = "{prefix}pooler.dense"


def _dropout(config: Config) -> float:
    return config.number("hidden_dropout_prob", 0.1)


class LongFormer(Architecture):
    """Longformer: Beltagy et al., arXiv 2004.05150.

    The input "global_mask" is transformers' `global_attention_mask`; no head sets it by itself. The additional setting
    "max_global_tokens" is the largest number of global tokens per sequence; default 128.
    """

    base_prefix = "longformer."
    ignored = (r"embeddings\.position_ids$",)
    tied = {
        "lm_head.decoder.weight": "longformer.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    heads = {
        "Model": Head(pooled, lambda config, prefix: linear(_POOLER.format(prefix=prefix), "pooler")),
        "MaskedLM": masked_language_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", activation="gelu"),
        "SequenceClassification": sequence_head("classifier.dense", "classifier.out_proj", dropout=_dropout),
        "MultipleChoice": sequence_head(_POOLER, "classifier", dropout=_dropout, choice=True),
        "TokenClassification": token_head(),
        "QuestionAnswering": span_head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        return Longformer(
            model_size(config),
            attention_window=_windows(config),
            max_global_tokens=config.integer("max_global_tokens", 128),
            max_sequence_length=num_positions(config),
            num_segments=config.integer("type_vocab_size"),
            padding_id=config.integer("pad_token_id", 1, minimum=0),
            positions_from_mask=True,
            **encoder_options(config),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [*embedding_entries(), *encoder_entries(config)]
        for index in range(config.integer("num_hidden_layers")):
            for name in ("query_global", "key_global", "value_global"):
                entries += linear(
                    f"encoder.layer.{index}.attention.self.{name}", f"encoder_block_{index}/self_attention/{name}"
                )
        return entries


def _windows(config: Config) -> list[int]:
    """Returns one window for all blocks, or a list with one for each."""
    windows = config.get("attention_window", 512)
    found = windows if isinstance(windows, list) else [windows]
    if len(found) not in (1, config.integer("num_hidden_layers")) or not all(map(_is_window, found)):
        raise ConfigError(
            f"{config.source}: 'attention_window' is {shown(windows)}; it must be an even number, or one for each layer."
        )
    return found


def _is_window(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 2 <= value <= 2**20 and value % 2 == 0
