"""Reformer: transformers\' `ReformerModel` and its heads."""

from __future__ import annotations

import math

import keras

from keras_transformer import tasks
from keras_transformer.attention import ChunkedAttention, LSHAttention
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.heads import classifier_dropout, span_answerer
from keras_transformer.checkpoints.config import Config, shown
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.layouts import Expanded, Matrix
from keras_transformer.checkpoints.mapping import Entry, embedding, linear, norm, same
from keras_transformer.models import Reformer, Size
from keras_transformer.positions import Axial, Learned

_KINDS = ("local", "lsh")
# Limits of settings that determine memory and that no tensor of the checkpoint confirms.
_LONGEST_CHUNK, _MOST_CHUNKS, _MOST_ROUNDS, _MOST_BUCKETS = 2**14, 64, 32, 2**13


def _language_model(backbone: keras.Model, config: Config) -> keras.Model:
    config.only("is_decoder", True)
    return tasks.LanguageModel(backbone, tie_embeddings=False, head_bias=True, end_id=config.tokens("eos_token_id"))


def _masked_language_model(backbone: keras.Model, config: Config) -> keras.Model:
    config.only("is_decoder", False)
    return tasks.MaskedLanguageModel(backbone, tie_embeddings=False, transform=False)


def _sequence_classifier(backbone: keras.Model, config: Config) -> keras.Model:
    return tasks.SequenceClassifier(
        backbone,
        config.num_labels,
        pooling="first",
        hidden_dim=config.integer("hidden_size"),
        dropout=classifier_dropout(config),
        activation=None,
    )


class ReformerArchitecture(Architecture):
    """Reformer: Kitaev et al., arXiv 2001.04451.

    transformers draws new rotations at every call; here they are drawn once, when the model is read. Padding does not
    change a sequence; in transformers, the first chunk of a short one looks back to chunks of padding. Without causality,
    transformers lets the first local chunk see the last one; here chunks do not wrap around. transformers 5 omits the bias
    of the logits, with which the published weights were trained; here it is added. Not supported: generation, as the
    tokens that a token attends to through buckets depend on later ones.
    """

    base_prefix = "reformer."
    initialized = (r"/rotations$",)
    tied = {"lm_head.decoder.bias": "lm_head.bias"}
    heads = {
        "Model": Head(),
        "ModelWithLMHead": Head(
            _language_model,
            lambda config, prefix: [
                *linear("lm_head.decoder", "head", bias=False),
                same("lm_head.bias", "logits/bias"),
            ],
        ),
        "MaskedLM": Head(
            _masked_language_model,
            lambda config, prefix: [
                *linear("lm_head.decoder", "logits", bias=False),
                same("lm_head.bias", "logits/bias"),
            ],
        ),
        "SequenceClassification": Head(
            _sequence_classifier,
            lambda config, prefix: [*linear("classifier.dense", "pooler"), *linear("classifier.out_proj", "logits")],
        ),
        "QuestionAnswering": Head(span_answerer, lambda config, prefix: linear("qa_outputs", "span")),
    }

    def backbone(self, config: Config) -> keras.Model:
        layers, causal = _layers(config), config.flag("is_decoder", False)
        if causal:  # As transformers requires.
            for kind in set(layers):
                config.only(f"{kind}_num_chunks_after", 0)
        return Reformer(
            Size(
                len(layers),
                config.integer("hidden_size"),
                config.integer("num_attention_heads"),
                config.integer("feed_forward_size"),
            ),
            config.integer("vocab_size"),
            layers=layers,
            key_dim=config.integer("attention_head_size"),
            local=ChunkedAttention(
                config.integer("local_attn_chunk_length", 64, maximum=_LONGEST_CHUNK),
                config.integer("local_num_chunks_before", 1, minimum=0, maximum=_MOST_CHUNKS),
                config.integer("local_num_chunks_after", 0, minimum=0, maximum=_MOST_CHUNKS),
                dropout=config.number("local_attention_probs_dropout_prob", 0.05),
            ),
            lsh=LSHAttention(
                _num_buckets(config),
                config.integer("lsh_attn_chunk_length", 64, maximum=_LONGEST_CHUNK),
                config.integer("num_hashes", 1, maximum=_MOST_ROUNDS),
                attend_across_buckets=True,
                dropout=config.number("lsh_attention_probs_dropout_prob", 0.0),
                seed=config.integer("hash_seed", None, minimum=0),
                chunks_before=config.integer("lsh_num_chunks_before", 1, minimum=0, maximum=_MOST_CHUNKS),
                chunks_after=config.integer("lsh_num_chunks_after", 0, minimum=0, maximum=_MOST_CHUNKS),
            ),
            causal=causal,
            position=_position(config),
            activation=config.activation(default="relu"),
            dropout=config.number("hidden_dropout_prob", 0.05),
            layer_norm_epsilon=config.number("layer_norm_eps", 1e-12),
        )

    def entries(self, config: Config) -> list[Entry]:
        entries = [*embedding("embeddings.word_embeddings", "token_embedding"), *_position_entries(config)]
        for index, kind in enumerate(_layers(config)):
            theirs, ours = f"encoder.layers.{index}", f"stack/reversible_block_{index}"
            entries += [
                *norm(f"{theirs}.attention.layer_norm", f"{ours}/mixer_norm"),
                *_attention(f"{theirs}.attention", f"{ours}/self_attention", kind),
                *norm(f"{theirs}.feed_forward.layer_norm", f"{ours}/feedforward_norm"),
                *linear(f"{theirs}.feed_forward.dense.dense", f"{ours}/feedforward/hidden"),
                *linear(f"{theirs}.feed_forward.output.dense", f"{ours}/feedforward/output"),
            ]
        return [*entries, *norm("encoder.layer_norm", "final_norm")]


def _attention(theirs: str, ours: str, kind: str) -> list[Entry]:
    names = {"query": "query", "key": "key"} if kind == "local" else {"query": "query_key"}
    projections = {**names, "value": "value"}
    entries = [
        Entry((f"{theirs}.self_attention.{their}.weight",), (f"{ours}/{our}/kernel",), Matrix())
        for our, their in projections.items()
    ]
    return [*entries, *linear(f"{theirs}.output.dense", f"{ours}/attention_output", inputs=2, bias=False)]


def _layers(config: Config) -> list[str]:
    layers = config.get("attn_layers")
    if not isinstance(layers, list) or not layers or not all(kind in _KINDS for kind in layers):
        raise ConfigError(f"{config.source}: 'attn_layers' is {shown(layers)}; it must be a list of {_KINDS}.")
    config.check_depth("attn_layers", len(layers))
    return layers


def _pair(config: Config, name: str) -> tuple[int, int]:
    """Returns two positive integers."""
    pair = config.get(name)
    if not isinstance(pair, list) or len(pair) != 2 or not all(_is_count(number) for number in pair):
        raise ConfigError(f"{config.source}: {name!r} is {shown(pair)}; it must be two positive integers.")
    return pair[0], pair[1]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31


def _position(config: Config) -> Learned | Axial:
    if not config.flag("axial_pos_embds", True):
        return Learned(config.integer("max_position_embeddings"), name="position_embedding")
    return Axial(_pair(config, "axial_pos_shape"), _pair(config, "axial_pos_embds_dim"), name="position_embedding")


def _position_entries(config: Config) -> list[Entry]:
    if not config.flag("axial_pos_embds", True):
        return embedding("embeddings.position_embeddings.embedding", "position_embedding")
    name = "embeddings.position_embeddings.weights"
    return [
        Entry((f"{name}.0",), ("position_embedding/row_embeddings",), Expanded(axis=1)),
        Entry((f"{name}.1",), ("position_embedding/column_embeddings",), Expanded()),
    ]


def _num_buckets(config: Config) -> int | list[int]:
    """Returns the number of buckets or its factors; by default that of the longest sequence, as in transformers."""
    found = config.get("num_buckets")
    if isinstance(found, list):
        if not found or not all(_is_count(factor) for factor in found) or sum(found) > _MOST_BUCKETS:
            raise ConfigError(
                f"{config.source}: 'num_buckets' is {shown(found)}; it must be numbers up to {_MOST_BUCKETS}."
            )
        return found
    if found is not None:
        return config.integer("num_buckets", maximum=_MOST_BUCKETS)
    length, chunk = config.integer("max_position_embeddings", 4096), config.integer("lsh_attn_chunk_length", 64)
    power = max(1, (2 * (length // chunk)).bit_length() - 1)
    if 2**power <= min(2 * max(math.isqrt(length // chunk), chunk), _MOST_BUCKETS):
        return 2**power
    return [2 ** (power // 2), 2 ** (power - power // 2)]
