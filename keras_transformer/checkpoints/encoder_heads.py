"""The heads that transformers puts on encoders, by the names of their tensors."""

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Head
from keras_transformer.checkpoints.heads import classifier_dropout, pooled, span_answerer, token_classifier
from keras_transformer.checkpoints.mapping import linear, norm, same

# What published files hold beside: the pooler, which comes with the backbone, and the other half of the pretraining.
_UNUSED = (r"\.pooler\.", r"^cls\.seq_relationship\.", r"^sop_classifier\.")


def masked_language_head(dense, layer_norm, bias, *, activation=None):
    """The head of hidden tokens, whose last matrix is the table of token embeddings.

    Args:
        dense, layer_norm: str: names of the transform and its norm.
        bias: str: the tensor that is added to the logits.
        activation: str: that of the transform; None for that of the config.
    """
    return Head(
        lambda backbone, config: masked_language_model(backbone, config, activation),
        lambda config, prefix: [
            *linear(dense, "transform"),
            *norm(layer_norm, "transform_norm"),
            same(bias, "logits/bias"),
        ],
        _UNUSED,
    )


def masked_language_model(backbone, config, activation=None):
    """Hidden tokens; a table of its own for the logits is refused."""
    config.only("tie_word_embeddings", True)
    return tasks.MaskedLanguageModel(
        backbone,
        activation=activation or config.activation(),
        layer_norm_epsilon=config.number("layer_norm_eps", 1e-12),
    )


def sequence_head(hidden, logits, *, activation="tanh", dropout=classifier_dropout, num_classes=None, choice=False):
    """The head over a hidden layer of the first token.

    Args:
        hidden, logits: str: names of the two dense layers; "{prefix}" in them is what stands before the backbone's tensors.
        activation: str, or function of a `Config` to it: of the hidden layer.
        dropout: function of a `Config`: of the hidden layer.
        num_classes: int; None for that of the config.
        choice: bool. Whether it gives one number to each of several texts.
    """

    def build(backbone, config):
        model = tasks.SequenceClassifier(
            backbone,
            1 if choice else num_classes or config.num_labels,
            pooling="first",
            hidden_dim=backbone.output.shape[-1],
            hidden_activation=activation(config) if callable(activation) else activation,
            dropout=dropout(config),
            activation=None,
        )
        return tasks.MultipleChoice(model) if choice else model

    def entries(config, prefix):
        return [*linear(hidden.format(prefix=prefix), "pooler"), *linear(logits, "logits")]

    return Head(build, entries, () if "pooler" in hidden else _UNUSED)


def pretraining_head(masked, hidden, logits):
    """Hidden tokens, and whether the second sentence follows the first.

    Args:
        masked: `Head` of the hidden tokens.
        hidden, logits: str: names of the two dense layers of the other: see `sequence_head`.
    """

    def build(backbone, config):
        tokens = masked.build(backbone, config).output
        x = keras.layers.Dense(2, dtype="float32", name="sentence_logits")(pooled(backbone, config).output["pooled"])
        return keras.Model(backbone.input, {"logits": tokens, "sentence_logits": x}, name="pretraining")

    def entries(config, prefix):
        pair = [*linear(hidden.format(prefix=prefix), "pooler"), *linear(logits, "sentence_logits")]
        return [*masked.entries(config, prefix), *pair]

    return Head(build, entries)


def token_head(build=token_classifier):
    """The head of a tag for every token."""
    return Head(build, lambda config, prefix: linear("classifier", "logits"), _UNUSED)


def span_head(build=span_answerer):
    """The head of the start and the end of an answer."""
    return Head(build, lambda config, prefix: linear("qa_outputs", "span"), _UNUSED)
