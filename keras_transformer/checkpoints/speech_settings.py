"""Settings of encoders of speech, as arguments of models."""

from __future__ import annotations

from typing import Any

from keras_transformer.audio import (
    BottleneckAdapter,
    ConvolutionalPosition,
    FeatureEncoder,
    SpanMasking,
    SpeechAdapter,
)
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.image_settings import integers
from keras_transformer.models import Size

MASK_EMBEDDING = "masked_spec_embed"
_CONVOLUTIONS = {
    "conv_dim": (512,) * 7,
    "conv_kernel": (10, 3, 3, 3, 3, 2, 2),
    "conv_stride": (5, 2, 2, 2, 2, 2, 2),
}


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
