"""MPNet: transformers\' `MPNetModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.encoders import (
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
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, linear, norm, same
from keras_transformer.models import MPNet

_POOLER = "{prefix}pooler.dense"
# Positions start after this id, whichever token is padding.
_PADDING_ID = 1


def _dropout(config: Config) -> float:
    return config.number("hidden_dropout_prob", 0.1)


class Mpnet(Architecture):
    """MPNet: Song et al., arXiv 2004.09297."""

    base_prefix = "mpnet."
    ignored = (r"embeddings\.position_ids$",)
    tied = {
        "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    heads = {
        "Model": Head(pooled, lambda config, prefix: linear(_POOLER.format(prefix=prefix), "pooler")),
        "MaskedLM": masked_language_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", activation="gelu"),
        "SequenceClassification": sequence_head("classifier.dense", "classifier.out_proj", dropout=_dropout),
        "MultipleChoice": sequence_head(_POOLER, "classifier", dropout=_dropout, choice=True),
        "TokenClassification": token_head(
            lambda backbone, config: tasks.Tagger(backbone, config.num_labels, dropout=_dropout(config))
        ),
        "QuestionAnswering": span_head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        config.only("relative_attention_num_buckets", 32)
        options = encoder_options(config)
        options.pop("attention_dropout")  # One dropout for all.
        rows = config.integer("max_position_embeddings")
        if rows < _PADDING_ID + 2:
            raise ConfigError(
                f"{config.source}: 'max_position_embeddings' is {rows}; it must be {_PADDING_ID + 2} or more."
            )
        return MPNet(
            model_size(config),
            max_sequence_length=rows - _PADDING_ID - 1,
            padding_id=_PADDING_ID,
            positions_from_mask=True,
            **options,
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [
            *embedding("embeddings.word_embeddings", "token_embedding"),
            *embedding("embeddings.position_embeddings", "position_embedding"),
            *norm("embeddings.LayerNorm", "embedding_norm"),
            # The blocks share them; the first one has made them.
            same("encoder.relative_attention_bias.weight", "encoder_block_0/self_attention/relative_bias/embeddings"),
        ]
        for index in range(config.integer("num_hidden_layers")):
            entries += _block_entries(f"encoder.layer.{index}", f"encoder_block_{index}")
        return entries


def _block_entries(theirs: str, ours: str) -> list[Entry]:
    return [
        *attention(
            f"{ours}/self_attention",
            query=f"{theirs}.attention.attn.q",
            key=f"{theirs}.attention.attn.k",
            value=f"{theirs}.attention.attn.v",
            output=f"{theirs}.attention.attn.o",
        ),
        *norm(f"{theirs}.attention.LayerNorm", f"{ours}/mixer_residual/norm"),
        *linear(f"{theirs}.intermediate.dense", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.output.dense", f"{ours}/feedforward/output"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}/feedforward_residual/norm"),
    ]
