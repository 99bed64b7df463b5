"""ModernBERT: transformers\' `ModernBertModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.config import Config, shown
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.mapping import Entry, embedding, fused_linear, linear, norm, same
from keras_transformer.feedforward.activations import get_activation
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.norms import LayerNormalization
from keras_transformer.models import ModernBERT, Size
from keras_transformer.tasks.heads import input_named, make_pooling
from keras_transformer.utils.types import Tensor

_POOLINGS = {"cls": "first", "mean": "mean"}


class ModernBert(Architecture):
    """ModernBERT: Warner et al., arXiv 2412.13663."""

    base_prefix = "model."
    tied = {"decoder.weight": "model.embeddings.tok_embeddings.weight"}
    heads = {
        "Model": Head(),
        "MaskedLM": Head(
            lambda backbone, config: _masked_language_model(backbone, config),
            lambda config, prefix: [*_transform_entries(config), same("decoder.bias", "logits/bias")],
        ),
        "SequenceClassification": Head(
            lambda backbone, config: _sequence_classifier(backbone, config, config.num_labels),
            lambda config, prefix: [*_transform_entries(config), *linear("classifier", "logits")],
        ),
        "MultipleChoice": Head(
            lambda backbone, config: tasks.MultipleChoice(_sequence_classifier(backbone, config, 1)),
            lambda config, prefix: [*_transform_entries(config), *linear("classifier", "logits")],
        ),
        "TokenClassification": Head(
            lambda backbone, config: tasks.Tagger(
                _with_transform(backbone, config), config.num_labels, dropout=_dropout(config)
            ),
            lambda config, prefix: [*_transform_entries(config), *linear("classifier", "logits")],
        ),
        "QuestionAnswering": Head(
            lambda backbone, config: tasks.SpanAnswerer(_with_transform(backbone, config), dropout=_dropout(config)),
            lambda config, prefix: [*_transform_entries(config), *linear("classifier", "span")],
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        return ModernBERT(
            Size(
                config.integer("num_hidden_layers"),
                config.integer("hidden_size"),
                config.integer("num_attention_heads"),
                config.integer("intermediate_size"),
            ),
            config.integer("vocab_size"),
            # transformers' window counts both sides; ours counts one side and the token itself.
            local_window=config.integer("local_attention", 128) // 2 + 1,
            is_local=_is_local(config),
            global_max_wavelength=_wavelength(config, "full_attention", "global_rope_theta", 160000.0),
            local_max_wavelength=_wavelength(config, "sliding_attention", "local_rope_theta", 10000.0),
            activation=config.activation("hidden_activation"),
            attention_bias=config.flag("attention_bias", False),
            feedforward_bias=config.flag("mlp_bias", False),
            norm_bias=config.flag("norm_bias", False),
            dropout=config.number("embedding_dropout", 0.0),
            attention_dropout=config.number("attention_dropout", 0.0),
            feedforward_dropout=config.number("mlp_dropout", 0.0),
            layer_norm_epsilon=config.number("norm_eps", 1e-5),
        )

    def entries(self, config: Config) -> list[Entry]:
        norm_bias = config.flag("norm_bias", False)
        entries = [
            *embedding("embeddings.tok_embeddings", "token_embedding"),
            *norm("embeddings.norm", "embedding_norm", bias=norm_bias),
            *norm("final_norm", "final_norm", bias=norm_bias),
        ]
        for index in range(config.integer("num_hidden_layers")):
            entries += _block_entries(config, f"layers.{index}", f"encoder_block_{index}", is_first=index == 0)
        return entries


def _block_entries(config: Config, theirs: str, ours: str, is_first: bool) -> list[Entry]:
    attention_bias, norm_bias = (config.flag(name, False) for name in ("attention_bias", "norm_bias"))
    feedforward_bias = config.flag("mlp_bias", False)
    first_norm = [] if is_first else norm(f"{theirs}.attn_norm", f"{ours}/mixer_residual/norm", bias=norm_bias)
    attention, feedforward = f"{ours}/self_attention", f"{ours}/feedforward"
    inputs = [f"{attention}/{name}" for name in ("query", "key", "value")]
    return [
        *first_norm,
        *fused_linear(f"{theirs}.attn.Wqkv", inputs, bias=attention_bias),
        *linear(f"{theirs}.attn.Wo", f"{attention}/attention_output", inputs=2, bias=attention_bias),
        *norm(f"{theirs}.mlp_norm", f"{ours}/feedforward_residual/norm", bias=norm_bias),
        *fused_linear(f"{theirs}.mlp.Wi", [f"{feedforward}/gate", f"{feedforward}/hidden"], bias=feedforward_bias),
        *linear(f"{theirs}.mlp.Wo", f"{feedforward}/output", bias=feedforward_bias),
    ]


def _is_local(config: Config) -> tuple[bool, ...]:
    """Returns which blocks are local, by "layer_types" of transformers 5 or by the period of older configs."""
    num_layers, every = config.integer("num_hidden_layers"), config.integer("global_attn_every_n_layers", 3)
    kinds = config.get("layer_types")
    if kinds is None:
        return tuple(bool(index % every) for index in range(num_layers))
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise ConfigError(f"{config.source}: 'layer_types' is {shown(kinds)}; it must have {num_layers} names.")
    names = {"sliding_attention": True, "full_attention": False}
    return tuple(Config({"layer_types": kind}, config.source).choice("layer_types", names) for kind in kinds)


def _wavelength(config: Config, kind: str, old_name: str, default: float) -> float:
    """Returns the wavelength of the rotary positions of one kind of block, from configs of version 5 or older."""
    if "rope_parameters" not in config:
        config.only("rope_scaling", None)
        return config.number(old_name, default)
    parameters = config.section("rope_parameters")
    if kind not in parameters:
        return default
    parameters.section(kind).only("rope_type", "default")
    return parameters.section(kind).number("rope_theta", default)


def _transform(x: Tensor, config: Config) -> Tensor:
    """Applies the dense layer and the norm that every head starts with."""
    dense = keras.layers.Dense(
        x.shape[-1],
        activation=get_activation(config.activation("classifier_activation")),
        use_bias=config.flag("classifier_bias", False),
        name="transform",
    )
    norm = LayerNormalization(
        epsilon=config.number("norm_eps", 1e-5), center=config.flag("norm_bias", False), name="transform_norm"
    )
    return norm(dense(x))


def _with_transform(backbone: keras.Model, config: Config) -> keras.Model:
    return keras.Model(backbone.input, _transform(backbone.output, config), name=backbone.name)


def _transform_entries(config: Config) -> list[Entry]:
    return [
        *linear("head.dense", "transform", bias=config.flag("classifier_bias", False)),
        *norm("head.norm", "transform_norm", bias=config.flag("norm_bias", False)),
    ]


def _dropout(config: Config) -> float:
    return config.number("classifier_dropout", 0.0)


def _masked_language_model(backbone: keras.Model, config: Config) -> keras.Model:
    config.only("decoder_bias", True)
    config.only("tie_word_embeddings", True)
    return tasks.MaskedLanguageModel(_with_transform(backbone, config), transform=False)


def _sequence_classifier(backbone: keras.Model, config: Config, num_classes: int) -> keras.Model:
    pooling = make_pooling(config.choice("classifier_pooling", _POOLINGS, "cls"))
    x = _transform(pooling(backbone.output, padding_mask=input_named(backbone, "padding_mask")), config)
    x = Dropout(_dropout(config), name="head_dropout")(x)
    x = keras.layers.Dense(num_classes, dtype="float32", name="logits")(x)
    return keras.Model(backbone.input, x, name="sequence_classifier")
