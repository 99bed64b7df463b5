"""BigBird: transformers\' `BigBirdModel` and its heads."""

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
    token_head,
)
from keras_transformer.checkpoints.building.heads import pooled
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, linear
from keras_transformer.models import BigBird

_POOLER = "{prefix}pooler"
_MASKED = (
    "cls.predictions.transform.dense",
    "cls.predictions.transform.LayerNorm",
    "cls.predictions.bias",
)


class Bigbird(Architecture):
    """BigBird: Zaheer et al., arXiv 2007.14062. Its question-answering head is not supported.

    Attention is that of transformers, see `as_transformers` of `BigBirdAttention`. For the attention of the paper, with
    random blocks in evaluation, add `"random_blocks_in_evaluation": true` to `config.json`.
    """

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
        "SequenceClassification": sequence_head(
            "classifier.dense", "classifier.out_proj", activation=lambda config: config.activation()
        ),
        "MultipleChoice": sequence_head(_POOLER, "classifier", choice=True),
        "TokenClassification": token_head(),
    }

    def backbone(self, config: Config) -> keras.Model:
        config.only("use_bias", True)
        config.only("rescale_embeddings", False)
        is_sparse = config.choice("attention_type", {"block_sparse": True, "original_full": False}, "block_sparse")
        return BigBird(
            model_size(config),
            block_size=config.integer("block_size", 64) if is_sparse else None,
            num_random_blocks=config.integer("num_random_blocks", 3, minimum=0),
            max_sequence_length=config.integer("max_position_embeddings"),
            num_segments=config.integer("type_vocab_size"),
            as_transformers=not config.flag("random_blocks_in_evaluation", False),
            **encoder_options(config, "gelu_new"),
        )

    def entries(self, config: Config) -> list[Entry]:
        return [*embedding_entries(), *encoder_entries(config)]
