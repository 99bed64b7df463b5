"""BERT, as transformers' `BertModel` and its heads."""

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.heads import classifier_dropout, pooled, span_answerer, token_classifier
from keras_transformer.checkpoints.mapping import attention, embedding, linear, norm, same
from keras_transformer.models import BERT, Size


def _sequence_classifier(backbone, config):
    return tasks.SequenceClassifier(
        backbone,
        config.num_labels,
        pooling="first",
        hidden_dim=config.integer("hidden_size"),
        dropout=classifier_dropout(config),
        activation=None,
    )


def _masked_language_model(backbone, config):
    return tasks.MaskedLanguageModel(
        backbone, activation=config.activation(), layer_norm_epsilon=config.number("layer_norm_eps", 1e-12)
    )


def _pooler(config, prefix):
    return linear(f"{prefix}pooler.dense", "pooler")


class Bert(Architecture):
    """BERT: Devlin et al., arXiv 1810.04805."""

    base_prefix = "bert."
    ignored = (r"embeddings\.position_ids$",)
    tied = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    heads = {
        "Model": Head(pooled, _pooler),
        "MaskedLM": Head(
            _masked_language_model,
            lambda config, prefix: [
                *linear("cls.predictions.transform.dense", "transform"),
                *norm("cls.predictions.transform.LayerNorm", "transform_norm"),
                same("cls.predictions.bias", "logits/bias"),
            ],
        ),
        "SequenceClassification": Head(
            _sequence_classifier,
            lambda config, prefix: [*_pooler(config, prefix), *linear("classifier", "logits")],
        ),
        "TokenClassification": Head(token_classifier, lambda config, prefix: linear("classifier", "logits")),
        "QuestionAnswering": Head(span_answerer, lambda config, prefix: linear("qa_outputs", "span")),
    }

    def backbone(self, config):
        config.only("is_decoder", False)
        config.only("position_embedding_type", "absolute")
        return BERT(
            Size(
                config.integer("num_hidden_layers"),
                config.integer("hidden_size"),
                config.integer("num_attention_heads"),
                config.integer("intermediate_size"),
            ),
            config.integer("vocab_size"),
            max_sequence_length=config.integer("max_position_embeddings"),
            num_segments=config.integer("type_vocab_size"),
            activation=config.activation(),
            dropout=config.number("hidden_dropout_prob", 0.1),
            attention_dropout=config.number("attention_probs_dropout_prob", 0.1),
            layer_norm_epsilon=config.number("layer_norm_eps", 1e-12),
        )

    def entries(self, config):
        entries = [
            *embedding("embeddings.word_embeddings", "token_embedding"),
            *embedding("embeddings.token_type_embeddings", "segment_embedding"),
            *embedding("embeddings.position_embeddings", "position_embedding"),
            *norm("embeddings.LayerNorm", "embedding_norm"),
        ]
        for index in range(config.integer("num_hidden_layers")):
            entries += block_entries(f"encoder.layer.{index}", f"encoder_block_{index}")
        return entries


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
