"""EuroBERT: transformers' `EuroBertModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.attention import MultiHeadAttention, SoftmaxAttention
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.decoders import (
    decoder_options,
    gated_decoder_entries,
    grouped_heads,
    head_width,
)
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.building.rotary import rotary
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.mapping import Entry, linear, same
from keras_transformer.feedforward import GatedFeedForward
from keras_transformer.layers.norms import RMSNormalization
from keras_transformer.models import Encoder

_POOLINGS = {"bos": "first", "mean": "mean", "late": "late"}


class EuroBert(Architecture):
    """EuroBERT: Boizard et al., arXiv 2503.05500: the blocks of Llama, each token of which attends to all."""

    base_prefix = "model."
    tied = {"lm_head.weight": "model.embed_tokens.weight"}
    heads = {
        # transformers has no pooler. Files of the masked language model have its projection, too.
        "Model": Head(ignored=(r"^lm_head\.",)),
        "MaskedLM": Head(
            lambda backbone, config: tasks.MaskedLanguageModel(
                backbone,
                transform=False,
                tie_embeddings=config.flag("tie_word_embeddings", False),
                use_bias=config.flag("mlp_bias", False),
            ),
            lambda config, prefix: _language_head(config),
        ),
        "SequenceClassification": Head(
            lambda backbone, config: _sequence_classifier(backbone, config),
            lambda config, prefix: [*linear("dense", "pooler"), *linear("classifier", "logits")],
        ),
        "TokenClassification": Head(
            lambda backbone, config: tasks.Tagger(backbone, config.num_labels),
            lambda config, prefix: linear("classifier", "logits"),
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        size, options = model_size(config), decoder_options(config, rms_norm_epsilon=1e-5)
        attention = MultiHeadAttention(
            size.num_heads,
            **grouped_heads(config),
            mechanism=SoftmaxAttention(dropout=options["attention_dropout"]),
            position=rotary(config, head_width(config)),
            use_bias=config.flag("attention_bias", False),
        )
        return Encoder(
            size,
            config.integer("vocab_size"),
            position=None,
            norm=RMSNormalization(epsilon=options["rms_norm_epsilon"]),
            attention=attention,
            feedforward=GatedFeedForward(
                size.intermediate_dim, options["activation"], use_bias=config.flag("mlp_bias", False)
            ),
            name="eurobert",
        )

    def entries(self, config: Config) -> list[Entry]:
        bias, feedforward_bias = (config.flag(name, False) for name in ("attention_bias", "mlp_bias"))
        return gated_decoder_entries(
            config, bias=bias, output_bias=bias, feedforward_bias=feedforward_bias, kind="encoder"
        )


def _language_head(config: Config) -> list[Entry]:
    """Returns the mapping of the output projection, whose bias is a setting of the feed-forwards."""
    bias = [same("lm_head.bias", "logits/bias")] if config.flag("mlp_bias", False) else []
    tied = config.flag("tie_word_embeddings", False)
    return [*([] if tied else linear("lm_head", "logits", bias=False)), *bias]


def _sequence_classifier(backbone: keras.Model, config: Config) -> keras.Model:
    pooling = config.choice("classifier_pooling", _POOLINGS, "late")
    width = backbone.output.shape[-1]
    if pooling != "late":
        return tasks.SequenceClassifier(
            backbone, config.num_labels, pooling=pooling, hidden_dim=width, hidden_activation="gelu", activation=None
        )
    # The mean of the logits of all tokens is the logits of the mean, as they are linear in it.
    x = keras.layers.Dense(width, activation=keras.activations.gelu, dtype="float32", name="pooler")(backbone.output)
    tokens = keras.Model(backbone.input, x, name=backbone.name)
    return tasks.SequenceClassifier(tokens, config.num_labels, pooling="mean", activation=None)
