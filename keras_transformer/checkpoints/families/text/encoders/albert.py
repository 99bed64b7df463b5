"""ALBERT: transformers\' `AlbertModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.encoders import (
    embedding_entries,
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
from keras_transformer.checkpoints.mapping import Entry, attention, linear, norm
from keras_transformer.models import ALBERT

_POOLER = "{prefix}pooler"
_MOST_BLOCKS = 64  # Of a group.
_MASKED = ("predictions.dense", "predictions.LayerNorm", "predictions.bias")


def _dropout(config: Config) -> float:
    return config.number("classifier_dropout_prob", 0.1)


class Albert(Architecture):
    """ALBERT: Lan et al., arXiv 1909.11942."""

    base_prefix = "albert."
    ignored = (r"embeddings\.position_ids$",)
    tied = {
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    }
    heads = {
        "Model": Head(pooled, lambda config, prefix: linear(_POOLER.format(prefix=prefix), "pooler")),
        "MaskedLM": masked_language_head(*_MASKED),
        "PreTraining": pretraining_head(masked_language_head(*_MASKED), _POOLER, "sop_classifier.classifier"),
        "SequenceClassification": sequence_head(_POOLER, "classifier", dropout=_dropout),
        "MultipleChoice": sequence_head(_POOLER, "classifier", dropout=_dropout, choice=True),
        "TokenClassification": token_head(
            lambda backbone, config: tasks.Tagger(backbone, config.num_labels, dropout=_dropout(config))
        ),
        "QuestionAnswering": span_head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        config.only("position_embedding_type", "absolute")
        size, inner = model_size(config), _blocks_per_group(config)
        return ALBERT(
            # "num_hidden_layers" counts applications of whole groups.
            size._replace(num_layers=size.num_layers * inner),
            embedding_dim=config.integer("embedding_size"),
            num_block_groups=config.integer("num_hidden_groups", 1, maximum=size.num_layers),
            blocks_per_group=inner,
            max_sequence_length=config.integer("max_position_embeddings"),
            num_segments=config.integer("type_vocab_size"),
            **encoder_options(config, "gelu_new"),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [*embedding_entries(), *linear("encoder.embedding_hidden_mapping_in", "embedding_projection")]
        inner = _blocks_per_group(config)
        for index in range(config.integer("num_hidden_groups", 1) * inner):
            theirs = f"encoder.albert_layer_groups.{index // inner}.albert_layers.{index % inner}"
            entries += _block_entries(theirs, f"encoder_block_{index}")
        return entries


def _blocks_per_group(config: Config) -> int:
    """Returns the number of different blocks in a group."""
    return config.integer("inner_group_num", 1, maximum=_MOST_BLOCKS)


def _block_entries(theirs: str, ours: str) -> list[Entry]:
    return [
        *attention(
            f"{ours}/self_attention",
            query=f"{theirs}.attention.query",
            key=f"{theirs}.attention.key",
            value=f"{theirs}.attention.value",
            output=f"{theirs}.attention.dense",
        ),
        *norm(f"{theirs}.attention.LayerNorm", f"{ours}/mixer_residual/norm"),
        *linear(f"{theirs}.ffn", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.ffn_output", f"{ours}/feedforward/output"),
        *norm(f"{theirs}.full_layer_layer_norm", f"{ours}/feedforward_residual/norm"),
    ]
