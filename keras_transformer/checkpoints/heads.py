"""Heads that many architectures share; each is a task with its outputs as logits."""

import keras

from keras_transformer import tasks


def classifier_dropout(config, fallback="hidden_dropout_prob"):
    """The dropout before a classifier."""
    return config.number("classifier_dropout", config.number(fallback, 0.0))


def token_classifier(backbone, config):
    """A tag for every token."""
    return tasks.Tagger(backbone, config.num_labels, dropout=classifier_dropout(config))


def span_answerer(backbone, config):
    """Start and end of an answer."""
    return tasks.SpanAnswerer(backbone)


def pooled(backbone, config):
    """Tokens, and `tanh(W x + b)` of the first: BERT's pooler."""
    x = keras.layers.Dense(backbone.output.shape[-1], activation="tanh", name="pooler")(backbone.output[:, 0])
    return keras.Model(backbone.input, {"tokens": backbone.output, "pooled": x}, name=backbone.name)
