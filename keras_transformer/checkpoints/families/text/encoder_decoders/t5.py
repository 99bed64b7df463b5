"""T5, versions 1.0 and 1.1, Flan-T5 and mT5: transformers\' `T5Model`, `MT5Model`, and their heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head, head_of
from keras_transformer.checkpoints.building import encoder_decoders as of_both
from keras_transformer.checkpoints.config import ACTIVATIONS, Config
from keras_transformer.checkpoints.mapping import Entry, attention, embedding, linear, rms_norm, same
from keras_transformer.models import T5, T5Encoder, T5Size

_FEEDFORWARDS = {
    "relu": ("dense", "relu"),
    "gelu": ("dense", "gelu"),
    # "gated-gelu" is the tanh approximation of GELU, as in the original code.
    "gated-gelu": ("gated", "gelu_tanh"),
    **{f"gated-{name}": ("gated", activation) for name, activation in ACTIVATIONS.items() if name != "gelu"},
}
# Heads on the encoder only.
_OF_ENCODER = ("EncoderModel", "TokenClassification")
_HEAD = "lm_head.weight"


def _scales_output(config: Config) -> bool:
    """Whether the input of the tied head is scaled, as in version 1.0; older configs have only "tie_word_embeddings"."""
    return config.get("model_type") != "mt5" and config.flag(
        "scale_decoder_outputs", config.flag("tie_word_embeddings", True)
    )


def _language_model(backbone: keras.Model, config: Config) -> keras.Model:
    scale = config.integer("d_model") ** -0.5 if _scales_output(config) else 1.0
    return of_both.language_model(backbone, config, tie_embeddings=_HEAD not in config.tensors, head_scale=scale)


def _language_head(config: Config, prefix: str) -> list[Entry]:
    return linear("lm_head", "head", bias=False) if _HEAD in config.tensors else []


def _token_classifier(backbone: keras.Model, config: Config) -> keras.Model:
    return tasks.Tagger(backbone, config.num_labels, dropout=config.number("classifier_dropout", 0.0))


class T5Architecture(Architecture):
    """T5: Raffel et al., arXiv 1910.10683."""

    base_prefix = "transformer."
    ignored = (r"EncDecAttention\.relative_attention_bias\.weight$",)
    tied = {
        f"{prefix}{name}": f"{prefix}shared.weight"
        for prefix in ("", base_prefix)
        for name in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    }
    heads = {
        "ConditionalGeneration": Head(_language_model, _language_head),
        "EncoderModel": Head(),
        "Model": Head(),
        "QuestionAnswering": Head(of_both.span_answerer, of_both.span_head),
        "SequenceClassification": Head(of_both.sequence_classifier, of_both.classification_head),
        "TokenClassification": Head(_token_classifier, lambda config, prefix: linear("classifier", "logits")),
    }

    def find_head(self, name: str, source: str) -> Head:
        # The former name in transformers, which files still have.
        return super().find_head("ConditionalGeneration" if name == "LMHeadModel" else name, source)

    def backbone(self, config: Config) -> keras.Model:
        config.only("is_decoder", False)
        feedforward, activation = _feedforward(config)
        size = T5Size(
            config.integer("num_layers"),
            config.integer("d_model"),
            config.integer("num_heads"),
            config.integer("d_ff"),
            config.integer("d_kv"),
            _num_decoder_layers(config),
        )
        make = T5Encoder if head_of(config) in _OF_ENCODER else T5
        return make(
            size,
            config.integer("vocab_size"),
            feedforward=feedforward,
            activation=activation,
            num_buckets=config.integer("relative_attention_num_buckets", 32, minimum=2),
            max_distance=config.integer("relative_attention_max_distance", 128),
            dropout=config.number("dropout_rate", 0.1),
            norm_epsilon=config.number("layer_norm_epsilon", 1e-6),
        )

    def entries(self, config: Config) -> list[Entry]:
        is_gated = _feedforward(config)[0] == "gated"
        entries = [*embedding("shared", "token_embedding")]
        sides = {"encoder": config.integer("num_layers"), "decoder": _num_decoder_layers(config)}
        for side, num_layers in sides.items():
            if side == "decoder" and head_of(config) in _OF_ENCODER:
                continue
            for index in range(num_layers):
                entries += _block(side, index, is_gated)
            entries += [
                same(
                    f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                    f"{side}_block_0/self_attention/relative_bias/embeddings",
                ),
                *rms_norm(f"{side}.final_layer_norm", f"{side}_final_norm"),
            ]
        return entries


class MT5Architecture(T5Architecture):
    """mT5: Xue et al., arXiv 2010.11934. T5 1.1 with other class names."""

    heads = {name: T5Architecture.heads[name] for name in ("ConditionalGeneration", "EncoderModel", "Model")}


def _feedforward(config: Config) -> tuple[str, str]:
    """Returns the kind of feed-forward network and the activation."""
    default = "gated-gelu" if config.get("model_type") == "mt5" else "relu"
    return config.choice("feed_forward_proj", _FEEDFORWARDS, default)


def _num_decoder_layers(config: Config) -> int:
    return config.integer("num_decoder_layers", config.integer("num_layers"))


def _block(side: str, index: int, is_gated: bool) -> list[Entry]:
    """Returns the mapping of one block of the "encoder" or the "decoder"."""
    ours = f"{side}_block_{index}"
    attentions = [("SelfAttention", "self_attention", "mixer")]
    attentions += [("EncDecAttention", "cross_attention", "cross_attention")] if side == "decoder" else []
    entries = []
    for number, (name, attention_name, residual) in enumerate(attentions):
        layer = f"{side}.block.{index}.layer.{number}"
        entries += [
            *attention(
                f"{ours}/{attention_name}",
                query=f"{layer}.{name}.q",
                key=f"{layer}.{name}.k",
                value=f"{layer}.{name}.v",
                output=f"{layer}.{name}.o",
                bias=False,
            ),
            *rms_norm(f"{layer}.layer_norm", f"{ours}/{residual}_residual/norm"),
        ]
    layer = f"{side}.block.{index}.layer.{len(attentions)}"
    kernels = {"wi_0": "gate", "wi_1": "hidden"} if is_gated else {"wi": "hidden"}
    for theirs, name in {**kernels, "wo": "output"}.items():
        entries += linear(f"{layer}.DenseReluDense.{theirs}", f"{ours}/feedforward/{name}", bias=False)
    return [*entries, *rms_norm(f"{layer}.layer_norm", f"{ours}/feedforward_residual/norm")]
