"""DeBERTa, versions 2 and 3: transformers' `DebertaV2Model` and its heads."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer import tasks
from keras_transformer.blocks import NGramInducedEncoding
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.encoders import (
    encoder_options,
    masked_language_head,
    sequence_head,
    span_head,
    token_head,
)
from keras_transformer.checkpoints.building.model_size import model_size
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.layouts import Transposed
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, linear, norm, same
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models import DeBERTa
from keras_transformer.positions import RelativeEmbedding

# The heads of pretraining, which published files without a head have, too.
_DISCRIMINATOR = r"^mask_predictions\."
_PRETRAINING = (_DISCRIMINATOR, r"^lm_predictions\.", r"^cls\.predictions\.")
_TERMS = ("c2p", "p2c")


def _dropout(config: Config) -> float:
    return config.number("hidden_dropout_prob", 0.1)


def _without_pretraining(head: Head) -> Head:
    return Head(head.build, head.entries, (*head.ignored, *_PRETRAINING))


# The masked language model.

_LEGACY = masked_language_head(
    "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
)
_PUBLISHED = masked_language_head(
    "lm_predictions.lm_head.dense", "lm_predictions.lm_head.LayerNorm", "lm_predictions.lm_head.bias"
)


def _language_head(config: Config) -> Head:
    """Returns the head that "legacy" names; without this setting, the one that the checkpoint has."""
    published = any(name.startswith("lm_predictions.") for name in config.tensors)
    if config.flag("legacy", not published):
        return _LEGACY
    config.only("embedding_size", config.integer("hidden_size"))
    return _PUBLISHED


# Classification.


def _pooled_head(choice: bool = False) -> Head:
    """Returns the head of the `ContextPooler`, which also has a dropout before its dense layer."""
    head = sequence_head(
        "pooler.dense",
        "classifier",
        activation=lambda config: config.activation("pooler_hidden_act"),
        dropout=lambda config: config.number("cls_dropout", _dropout(config)),
        choice=choice,
    )

    def build(backbone: keras.Model, config: Config) -> keras.Model:
        config.only("pooler_hidden_size", config.integer("hidden_size"))
        rate = config.number("pooler_dropout", 0.0)
        if rate:
            x = Dropout(rate, name="pooler_dropout")(backbone.output)
            backbone = keras.Model(backbone.input, x, name=backbone.name)
        return head.build(backbone, config)

    return _without_pretraining(Head(build, head.entries, head.ignored))


class DebertaV2(Architecture):
    """DeBERTa, versions 2 and 3: He et al., arXiv 2006.03654 and 2111.09543."""

    remark = "versions 2 and 3"
    base_prefix = "deberta."
    tied = {
        "cls.predictions.decoder.weight": "deberta.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    heads = {
        "Model": _without_pretraining(Head()),
        "MaskedLM": Head(
            lambda backbone, config: _language_head(config).build(backbone, config),
            lambda config, prefix: _language_head(config).entries(config, prefix),
            (*_LEGACY.ignored, _DISCRIMINATOR),
        ),
        "SequenceClassification": _pooled_head(),
        "MultipleChoice": _pooled_head(choice=True),
        "TokenClassification": _without_pretraining(
            token_head(lambda backbone, config: tasks.Tagger(backbone, config.num_labels, dropout=_dropout(config)))
        ),
        "QuestionAnswering": _without_pretraining(span_head()),
    }

    def backbone(self, config: Config) -> keras.Model:
        size = model_size(config)
        config.only("attention_head_size", size.hidden_dim // size.num_heads)
        options = encoder_options(config) | {"layer_norm_epsilon": config.number("layer_norm_eps", 1e-7)}
        return DeBERTa(
            size,
            relative_embedding=_relative_embedding(config, options["layer_norm_epsilon"]),
            terms=_terms(config),
            share_projections=config.flag("share_att_key", False),
            convolution=_convolution(config, options),
            max_sequence_length=config.integer("max_position_embeddings", 512) if _has_positions(config) else None,
            num_segments=_segments(config) or None,
            embedding_dim=config.integer("embedding_size") if _projects(config) else None,
            **options,
        )

    def ignored_in(self, config: Config) -> tuple[str, ...]:
        # Files of version 3 have a table of positions that their config does not use.
        positions = () if _has_positions(config) else (r"embeddings\.position_embeddings\.weight$",)
        relative = () if _terms(config) else (r"encoder\.LayerNorm\.",)
        return (r"embeddings\.position_ids$", *positions, *relative)

    def entries(self, config: Config) -> list[Entry]:
        entries = [
            *embedding("embeddings.word_embeddings", "token_embedding"),
            *(embedding("embeddings.position_embeddings", "position_embedding") if _has_positions(config) else []),
            *(embedding("embeddings.token_type_embeddings", "segment_embedding") if _segments(config) else []),
            *(linear("embeddings.embed_proj", "embedding_projection", bias=False) if _projects(config) else []),
            *norm("embeddings.LayerNorm", "embedding_norm"),
            *_relative_entries(config),
        ]
        if _kernel_size(config):
            ours = "ngram_induced_encoding"
            kernel = Entry(("encoder.conv.conv.weight",), (f"{ours}/kernel",), Transposed((2, 1, 0)))
            entries += [kernel, same("encoder.conv.conv.bias", f"{ours}/bias")]
            entries += norm("encoder.conv.LayerNorm", f"{ours}/norm")
        for index in range(config.integer("num_hidden_layers")):
            entries += _block_entries(f"encoder.layer.{index}", f"encoder_block_{index}", config)
        return entries


def _block_entries(theirs: str, ours: str, config: Config) -> list[Entry]:
    mixer, own = f"{theirs}.attention.self", {"c2p": "pos_key_proj", "p2c": "pos_query_proj"}
    names = {"c2p": "position_key", "p2c": "position_query"}
    terms = [] if config.flag("share_att_key", False) else _terms(config)
    return [
        *attention(
            f"{ours}/self_attention",
            query=f"{mixer}.query_proj",
            key=f"{mixer}.key_proj",
            value=f"{mixer}.value_proj",
            output=f"{theirs}.attention.output.dense",
        ),
        *(entry for term in terms for entry in linear(f"{mixer}.{own[term]}", f"{ours}/self_attention/{names[term]}")),
        *norm(f"{theirs}.attention.output.LayerNorm", f"{ours}/mixer_residual/norm"),
        *linear(f"{theirs}.intermediate.dense", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.output.dense", f"{ours}/feedforward/output"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}/feedforward_residual/norm"),
    ]


def _relative_entries(config: Config) -> list[Entry]:
    # The blocks share it; the first one has made it.
    ours = "encoder_block_0/self_attention/relative_embedding"
    entries = [same("encoder.rel_embeddings.weight", f"{ours}/embeddings")] if _terms(config) else []
    return entries + (norm("encoder.LayerNorm", f"{ours}/norm") if _normalizes(config) and _terms(config) else [])


# Settings.


def _terms(config: Config) -> list[str]:
    """Returns the terms of relative positions; none without relative attention."""
    found: Any = config.get("pos_att_type", [])
    names = [each.strip() for each in found.lower().split("|")] if isinstance(found, str) else found
    if not config.flag("relative_attention", False):
        if names:
            config.only("pos_att_type", None)
        return []
    if not isinstance(names, list) or not names or any(name not in _TERMS for name in names):
        raise ConfigError(
            f'{config.source}: \'pos_att_type\' is {found!r}; with "relative_attention", it must name "c2p", "p2c" or both.'
        )
    return [term for term in _TERMS if term in names]


def _relative_embedding(config: Config, epsilon: float) -> RelativeEmbedding | None:
    if not _terms(config):
        return None
    distance = config.integer("max_relative_positions", -1, minimum=-1)
    buckets = config.integer("position_buckets", -1, minimum=-1)
    return RelativeEmbedding(
        distance if distance > 0 else config.integer("max_position_embeddings", 512),
        num_buckets=buckets if buckets > 0 else None,
        norm=LayerNormalization(epsilon=epsilon) if _normalizes(config) else None,
    )


def _normalizes(config: Config) -> bool:
    """Whether the relative embedding is normalized."""
    return config.choice("norm_rel_ebd", {"none": False, "layer_norm": True}, "none")


def _convolution(config: Config, options: dict[str, Any]) -> NGramInducedEncoding | None:
    size = _kernel_size(config)
    if not size:
        return None
    return NGramInducedEncoding(
        size,
        groups=config.integer("conv_groups", 1),
        activation=config.activation("conv_act", "tanh"),
        norm=LayerNormalization(epsilon=options["layer_norm_epsilon"]),
        dropout=options["dropout"],
    )


def _kernel_size(config: Config) -> int:
    return config.integer("conv_kernel_size", 0, minimum=0)


def _has_positions(config: Config) -> bool:
    return config.flag("position_biased_input", True)


def _segments(config: Config) -> int:
    return config.integer("type_vocab_size", 0, minimum=0)


def _projects(config: Config) -> bool:
    width = config.integer("hidden_size")
    return config.integer("embedding_size", width) != width
