"""BERT, as transformers' `BertModel` and its heads."""

from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.encoder_heads import (
    masked_language_head,
    pretraining_head,
    sequence_head,
    span_head,
    token_head,
)
from keras_transformer.checkpoints.heads import pooled
from keras_transformer.checkpoints.mapping import attention, embedding, linear, norm
from keras_transformer.models import BERT, Size

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

    def backbone(self, config):
        config.only("position_embedding_type", "absolute")
        return BERT(
            bert_size(config),
            max_sequence_length=config.integer("max_position_embeddings"),
            num_segments=config.integer("type_vocab_size"),
            **bert_options(config),
        )

    def entries(self, config):
        return [
            *bert_embedding_entries(),
            *bert_block_entries(config),
        ]


def bert_size(config):
    """The `Size` of a config with BERT's names."""
    return Size(
        config.integer("num_hidden_layers"),
        config.integer("hidden_size"),
        config.integer("num_attention_heads"),
        config.integer("intermediate_size"),
    )


def bert_options(config, activation="gelu"):
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


def bert_embedding_entries():
    """The mapping of the embeddings, under the names of BERT."""
    return [
        *embedding("embeddings.word_embeddings", "token_embedding"),
        *embedding("embeddings.token_type_embeddings", "segment_embedding"),
        *embedding("embeddings.position_embeddings", "position_embedding"),
        *norm("embeddings.LayerNorm", "embedding_norm"),
    ]


def bert_block_entries(config):
    """The mapping of all blocks, under the names of BERT."""
    indices = range(config.integer("num_hidden_layers"))
    return [entry for i in indices for entry in block_entries(f"encoder.layer.{i}", f"encoder_block_{i}")]


def block_entries(theirs, ours):
    """The mapping of one post-norm block, under the names of BERT."""
    return [
        *attention(
            f"{ours}/self_attention",
            query=f"{theirs}.attention.self.query",
            key=f"{theirs}.attention.self.key",
            value=f"{theirs}.attention.self.value",
            output=f"{theirs}.attention.output.dense",
        ),
        *norm(f"{theirs}.attention.output.LayerNorm", f"{ours}/mixer_residual/norm"),
        *linear(f"{theirs}.intermediate.dense", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.output.dense", f"{ours}/feedforward/output"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}/feedforward_residual/norm"),
    ]
