"""DistilBERT: transformers\' `DistilBertModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.encoders import sequence_head, span_head, token_head
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, linear, norm, same
from keras_transformer.models import DistilBERT, Size


def _dropout(config: Config) -> float:
    return config.number("seq_classif_dropout", 0.2)


def _masked_language_model(backbone: keras.Model, config: Config) -> keras.Model:
    config.only("tie_word_embeddings", True)
    return tasks.MaskedLanguageModel(backbone, activation=config.activation("activation"), layer_norm_epsilon=1e-12)


class DistilBert(Architecture):
    """DistilBERT: Sanh et al., arXiv 1910.01108."""

    base_prefix = "distilbert."
    ignored = (r"embeddings\.position_ids$",)
    tied = {"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"}
    heads = {
        "Model": Head(),
        "MaskedLM": Head(
            _masked_language_model,
            lambda config, prefix: [
                *linear("vocab_transform", "transform"),
                *norm("vocab_layer_norm", "transform_norm"),
                same("vocab_projector.bias", "logits/bias"),
            ],
        ),
        "SequenceClassification": sequence_head("pre_classifier", "classifier", activation="relu", dropout=_dropout),
        "MultipleChoice": sequence_head(
            "pre_classifier", "classifier", activation="relu", dropout=_dropout, choice=True
        ),
        "TokenClassification": token_head(
            lambda backbone, config: tasks.Tagger(backbone, config.num_labels, dropout=config.number("dropout", 0.1))
        ),
        "QuestionAnswering": span_head(
            lambda backbone, config: tasks.SpanAnswerer(backbone, dropout=config.number("qa_dropout", 0.1))
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        return DistilBERT(
            Size(
                config.integer("n_layers"),
                config.integer("dim"),
                config.integer("n_heads"),
                config.integer("hidden_dim"),
            ),
            config.integer("vocab_size"),
            max_sequence_length=config.integer("max_position_embeddings"),
            activation=config.activation("activation"),
            dropout=config.number("dropout", 0.1),
            attention_dropout=config.number("attention_dropout", 0.1),
        )

    def entries(self, config: Config) -> list[Entry]:
        indices = range(config.integer("n_layers"))
        return [
            *embedding("embeddings.word_embeddings", "token_embedding"),
            *embedding("embeddings.position_embeddings", "position_embedding"),
            *norm("embeddings.LayerNorm", "embedding_norm"),
            *(entry for i in indices for entry in _block_entries(f"transformer.layer.{i}", f"encoder_block_{i}")),
        ]


def _block_entries(theirs: str, ours: str) -> list[Entry]:
    return [
        *attention(
            f"{ours}/self_attention",
            query=f"{theirs}.attention.q_lin",
            key=f"{theirs}.attention.k_lin",
            value=f"{theirs}.attention.v_lin",
            output=f"{theirs}.attention.out_lin",
        ),
        *norm(f"{theirs}.sa_layer_norm", f"{ours}/mixer_residual/norm"),
        *linear(f"{theirs}.ffn.lin1", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.ffn.lin2", f"{ours}/feedforward/output"),
        *norm(f"{theirs}.output_layer_norm", f"{ours}/feedforward_residual/norm"),
    ]
