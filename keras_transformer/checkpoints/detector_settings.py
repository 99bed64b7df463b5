"""Settings of RT-DETR and its successors, as arguments of models."""

from __future__ import annotations

from typing import Any

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.image_settings import integers
from keras_transformer.models import HybridEncoderSize


def encoder_size(config: Config) -> HybridEncoderSize:
    """Returns the `HybridEncoderSize` of three feature maps."""
    size = HybridEncoderSize(
        config.integer("encoder_hidden_dim", 256),
        config.integer("encoder_layers", 1),
        config.integer("encoder_attention_heads", 8),
        config.integer("encoder_ffn_dim", 1024),
        config.number("hidden_expansion", 1.0),
        _levels(config),
        activations=(
            config.activation("activation_function", "silu"),
            config.activation("encoder_activation_function", "gelu"),
        ),
        max_wavelength=config.number("positional_encoding_temperature", 10000.0),
    )
    if not size.expansion > 0 or size.hidden_dim % 4 or size.hidden_dim % size.num_heads:
        raise ConfigError(
            f"{config.source}: 'encoder_hidden_dim' is {size.hidden_dim}; 4 and 'encoder_attention_heads' must divide it, "
            "and 'hidden_expansion' must be above 0."
        )
    return size


def query_options(config: Config) -> dict[str, Any]:
    """Returns the options that RT-DETR and its successors share; settings of other variants raise `ConfigError`."""
    config.only("normalize_before", False)
    config.only("learn_initial_query", False)
    # Positions or anchors of another size than that of the images.
    config.only("eval_size", None)
    config.only("anchor_image_size", None)
    config.only("num_feature_levels", 3)
    width, heads = config.integer("d_model", 256), config.integer("decoder_attention_heads", 8)
    if width % heads:
        raise ConfigError(f"{config.source}: 'd_model' is {width}; 'decoder_attention_heads', {heads}, must divide it.")
    channels = config.integer("encoder_hidden_dim", 256)
    if integers(config, "decoder_in_channels", (256,) * 3) != (channels,) * 3:
        raise ConfigError(
            f"{config.source}: 'decoder_in_channels' must be three times 'encoder_hidden_dim', {channels}."
        )
    return {
        "num_classes": config.num_labels,
        "num_queries": config.integer("num_queries", 300),
        "dropout": config.number("dropout", 0.0),
        "attention_dropout": config.number("attention_dropout", 0.0),
        "hidden_dropout": config.number("activation_dropout", 0.0),
        "layer_norm_epsilon": config.number("layer_norm_eps", 1e-5),
        "batch_norm_epsilon": config.number("batch_norm_eps", 1e-5),
    }


def last_stages(backbone: Config, count: int) -> None:
    """Raises `ConfigError` unless a backbone of `count` stages gives the feature maps of the last three."""
    last = [f"stage{index}" for index in range(count - 2, count + 1)]
    if count < 3 or backbone.get("out_features", last) != last:
        raise ConfigError(f"{backbone.source}: 'out_features' must be those of the last three stages, {last}.")


def _levels(config: Config) -> tuple[int, ...]:
    """Returns the feature maps whose pixels attend to one another."""
    found = config.get("encode_proj_layers", [2])
    if not isinstance(found, (list, tuple)) or not set(map(str, found)) <= {"0", "1", "2"}:
        raise ConfigError(f"{config.source}: 'encode_proj_layers' must be a list of 0, 1 and 2. Found: {found!r}")
    return tuple(int(level) for level in found)
