"""Encoders of speech: settings as arguments of models, the mapping of their tensors, and the heads."""

from __future__ import annotations

from typing import Any

import keras

from keras_transformer import tasks
from keras_transformer.audio import (
    BottleneckAdapter,
    ConvolutionalPosition,
    FeatureEncoder,
    GumbelQuantizer,
    SpanMasking,
    SpeechAdapter,
)
from keras_transformer.checkpoints.architecture import Head
from keras_transformer.checkpoints.building.images import integers
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.layouts import Expanded, Fused, Layout, Transposed, WeightNormalized
from keras_transformer.checkpoints.mapping import Entry, attention, linear, norm, same
from keras_transformer.models import Size

MASK_EMBEDDING = "masked_spec_embed"
_CONVOLUTIONS = {
    "conv_dim": (512,) * 7,
    "conv_kernel": (10, 3, 3, 3, 3, 2, 2),
    "conv_stride": (5, 2, 2, 2, 2, 2, 2),
}
_POSITION = "encoder.pos_conv_embed.conv"
_CONVOLUTION = Transposed((2, 1, 0))


def speech_size(config: Config) -> Size:
    """Returns the `Size` of an encoder of speech."""
    return Size(
        config.integer("num_hidden_layers", 12),
        config.integer("hidden_size", 768),
        config.integer("num_attention_heads", 12),
        config.integer("intermediate_size", 3072),
    )


def speech_options(config: Config) -> dict[str, Any]:
    """Returns the options that wav2vec 2.0, HuBERT and WavLM share."""
    is_stable = config.flag("do_stable_layer_norm", False)
    return {
        "feature_encoder": feature_encoder(config),
        "position": ConvolutionalPosition(
            config.integer("num_conv_pos_embeddings", 128),
            config.integer("num_conv_pos_embedding_groups", 16),
            config.activation("feat_extract_activation"),
        ),
        "span_masking": span_masking(config),
        "residual": "pre" if is_stable else "post",
        "activation": config.activation(),
        "dropout": config.number("hidden_dropout", 0.1),
        "attention_dropout": config.number("attention_dropout", 0.1),
        "hidden_dropout": config.number("activation_dropout", 0.1),
        "feature_dropout": config.number("feat_proj_dropout", 0.0),
        "layer_norm_epsilon": config.number("layer_norm_eps", 1e-5),
    }


def feature_encoder(config: Config) -> FeatureEncoder:
    """Returns the convolutions over samples."""
    widths, kernels, strides = (integers(config, name, default) for name, default in _CONVOLUTIONS.items())
    return FeatureEncoder(
        widths,
        kernels,
        strides,
        norm=config.choice("feat_extract_norm", {"group": "group", "layer": "layer"}, "group"),
        activation=config.activation("feat_extract_activation"),
        use_bias=config.flag("conv_bias", False),
    )


def has_span_masking(config: Config) -> bool:
    """Returns whether the checkpoint has a vector for hidden frames."""
    return config.number("mask_time_prob", 0.05) > 0 or config.number("mask_feature_prob", 0.0) > 0


def span_masking(config: Config) -> SpanMasking | None:
    """Returns the masking of frames in training; None if the checkpoint has no vector for them."""
    if not has_span_masking(config):
        return None
    applies = config.flag("apply_spec_augment", True)
    return SpanMasking(
        config.number("mask_time_prob", 0.05) if applies else 0.0,
        config.integer("mask_time_length", 10),
        config.integer("mask_time_min_masks", 2, minimum=0),
        feature_probability=config.number("mask_feature_prob", 0.0) if applies else 0.0,
        feature_span_length=config.integer("mask_feature_length", 10),
        min_feature_spans=config.integer("mask_feature_min_masks", 0, minimum=0),
    )


def adapter(config: Config) -> SpeechAdapter | None:
    """Returns the adapter that shortens the frames; None for none."""
    if not config.flag("add_adapter", False):
        return None
    width, output = config.integer("hidden_size", 768), config.integer("output_hidden_size", None)
    return SpeechAdapter(
        config.integer("num_adapter_layers", 3),
        config.integer("adapter_kernel_size", 3),
        config.integer("adapter_stride", 2),
        hidden_dim=None if output in (None, width) else output,
    )


def block_adapter(config: Config) -> BottleneckAdapter | None:
    """Returns the adapter of every block, as of MMS; None for none. Only encoders with norms first have them."""
    width = config.integer("adapter_attn_dim", None)
    return BottleneckAdapter(width) if width and config.flag("do_stable_layer_norm", False) else None


def convolution(theirs: str, ours: str, bias: bool = True) -> list[Entry]:
    """Returns the mapping of a convolution over time."""
    entries = [Entry((f"{theirs}.weight",), (f"{ours}/kernel",), _CONVOLUTION)]
    return [*entries, same(f"{theirs}.bias", f"{ours}/bias")] if bias else entries


def weight_norm_names(config: Config, theirs: str) -> tuple[str, str]:
    """Returns the names of the norms and the directions of a kernel with weight normalization."""
    # Old files have the names of torch's first weight normalization.
    if any(name.endswith(f"{theirs}.weight_g") for name in config.tensors):
        return f"{theirs}.weight_g", f"{theirs}.weight_v"
    return f"{theirs}.parametrizations.weight.original0", f"{theirs}.parametrizations.weight.original1"


def speech_entries(config: Config) -> list[Entry]:
    """Returns the mapping of an encoder of speech up to the norm after its blocks, without adapters."""
    first_norm = config.flag("do_stable_layer_norm", False)
    entries = [
        *_feature_encoder(config),
        *linear("feature_projection.projection", "feature_projection"),
        *_position(config),
        *norm("encoder.layer_norm", "final_norm" if first_norm else "embedding_norm"),
    ]
    if has_span_masking(config):
        entries.append(same(MASK_EMBEDDING, "span_masking/mask_embedding"))
    for index in range(config.integer("num_hidden_layers", 12)):
        entries += _block(f"encoder.layers.{index}", f"encoder_block_{index}")
    return entries


def _feature_encoder(config: Config) -> list[Entry]:
    entries = []
    num_layers = len(config.get("conv_dim", (512,) * 7))
    has_norms = config.get("feat_extract_norm", "group") == "layer"
    for index in range(num_layers):
        theirs = f"feature_extractor.conv_layers.{index}"
        entries += convolution(
            f"{theirs}.conv", f"feature_encoder/convolution_{index}", config.flag("conv_bias", False)
        )
        if has_norms or index == 0:
            entries += norm(f"{theirs}.layer_norm", f"feature_encoder/norm_{index}")
    return entries


def _position(config: Config) -> list[Entry]:
    """Returns the mapping of the convolution over frames, a part for each group."""
    groups = [f"position/convolution_{index}" for index in range(config.integer("num_conv_pos_embedding_groups", 16))]
    return [
        Entry(
            weight_norm_names(config, _POSITION),
            tuple(f"{group}/kernel" for group in groups),
            WeightNormalized(Fused(_CONVOLUTION)),
        ),
        Entry((f"{_POSITION}.bias",), tuple(f"{group}/bias" for group in groups), Fused(Layout())),
    ]


def _block(theirs: str, ours: str) -> list[Entry]:
    return [
        *attention(
            f"{ours}/self_attention",
            query=f"{theirs}.attention.q_proj",
            key=f"{theirs}.attention.k_proj",
            value=f"{theirs}.attention.v_proj",
            output=f"{theirs}.attention.out_proj",
        ),
        *norm(f"{theirs}.layer_norm", f"{ours}/mixer_residual/norm"),
        *norm(f"{theirs}.final_layer_norm", f"{ours}/feedforward_residual/norm"),
        *linear(f"{theirs}.feed_forward.intermediate_dense", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.feed_forward.output_dense", f"{ours}/feedforward/output"),
    ]


def _recognizer(backbone: keras.Model, config: Config) -> keras.Model:
    size = config.integer("vocab_size", 32, minimum=2)
    return tasks.SpeechRecognizer(
        backbone,
        size,
        blank_id=config.integer("pad_token_id", 0, minimum=0, maximum=size - 1),
        dropout=config.number("final_dropout", 0.1),
    )


def _classifier(backbone: keras.Model, config: Config) -> keras.Model:
    config.only("use_weighted_layer_sum", False)
    projector = keras.layers.Dense(config.integer("classifier_proj_size", 256), name="projector")
    projected = keras.Model(backbone.input, projector(backbone.output), name=backbone.name)
    return tasks.SequenceClassifier(projected, config.num_labels, pooling="mean", activation=None)


def _frame_classifier(backbone: keras.Model, config: Config) -> keras.Model:
    config.only("use_weighted_layer_sum", False)
    return tasks.Tagger(backbone, config.num_labels)


def _pretraining(backbone: keras.Model, config: Config) -> keras.Model:
    quantizer = GumbelQuantizer(
        config.integer("num_codevector_groups", 2),
        config.integer("num_codevectors_per_group", 320),
        config.integer("codevector_dim", 256),
    )
    return tasks.SpeechPretraining(
        backbone,
        quantizer=quantizer,
        projection_dim=config.integer("proj_codevector_dim", 256),
        num_distractors=config.integer("num_negatives", 100),
        temperature=config.number("contrastive_logits_temperature", 0.1),
        diversity_weight=config.number("diversity_loss_weight", 0.1),
        dropout=config.number("feat_quantizer_dropout", 0.0),
    )


def _pretraining_entries(config: Config, prefix: str) -> list[Entry]:
    return [
        Entry(("quantizer.codevectors",), ("quantizer/codevectors",), Expanded()),
        *linear("quantizer.weight_proj", "quantizer/code_logits"),
        *linear("project_hid", "projection"),
        *linear("project_q", "target_projection"),
    ]


PRETRAINING = Head(_pretraining, _pretraining_entries)
RECOGNIZER = Head(_recognizer, lambda config, prefix: linear("lm_head", "frame_logits"))
CLASSIFIER = Head(
    _classifier, lambda config, prefix: [*linear("projector", "projector"), *linear("classifier", "logits")]
)
FRAME_CLASSIFIER = Head(_frame_classifier, lambda config, prefix: linear("classifier", "logits"))
