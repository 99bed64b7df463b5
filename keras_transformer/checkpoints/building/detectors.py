"""RT-DETR and its successors: settings as arguments of models, and the mapping of their tensors."""

from __future__ import annotations

from typing import Any

from keras_transformer.checkpoints.building.images import convolution_entries, integers
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.mapping import Entry, attention, linear, norm
from keras_transformer.models import HybridEncoderSize

# No published decoder has more.
_MOST_BLOCKS = 12


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


def encoder_block_entries(theirs: str, ours: str) -> list[Entry]:
    """Returns the mapping of self-attention and feed-forward of a block."""
    return [
        *attention(
            f"{ours}/self_attention/attention",
            query=f"{theirs}.self_attn.q_proj",
            key=f"{theirs}.self_attn.k_proj",
            value=f"{theirs}.self_attn.v_proj",
            output=f"{theirs}.self_attn.out_proj",
        ),
        *norm(f"{theirs}.self_attn_layer_norm", f"{ours}/mixer_residual/norm"),
        *linear(f"{theirs}.fc1", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.fc2", f"{ours}/feedforward/output"),
        *norm(f"{theirs}.final_layer_norm", f"{ours}/feedforward_residual/norm"),
    ]


def neck_entries(config: Config) -> list[Entry]:
    """Returns the mapping of the projections of the backbone's feature maps, of attention and of the lateral steps."""
    entries, size = [], encoder_size(config)
    for level in range(3):
        theirs = f"encoder_input_proj.{level}"
        entries += convolution_entries(f"{theirs}.0", f"{theirs}.1", f"feature_projection_{level}")
    for number in range(len(size.levels)):
        for index in range(size.num_layers):
            ours = f"encoder_block_{number}_{index}"
            entries += encoder_block_entries(f"encoder.encoder.{number}.layers.{index}", ours)
    for number in range(2):
        theirs = f"encoder.lateral_convs.{number}"
        entries += convolution_entries(f"{theirs}.conv", f"{theirs}.norm", f"lateral_{number}")
    return entries


def csp_entries(theirs: str, ours: str, depth: int, has_output: bool) -> list[Entry]:
    """Returns the mapping of a `csp_stage`; `has_output` says whether it has a last projection."""
    names = [(f"{theirs}.conv1", f"{ours}_main"), (f"{theirs}.conv2", f"{ours}_skip")]
    names += [(f"{theirs}.conv3", f"{ours}_output")] if has_output else []
    for index in range(depth):
        for part, kind in (("conv1", "wide"), ("conv2", "narrow")):
            names.append((f"{theirs}.bottlenecks.{index}.{part}", f"{ours}_block_{index}_{kind}"))
    return [entry for name, path in names for entry in convolution_entries(f"{name}.conv", f"{name}.norm", path)]


def query_entries(config: Config, last: str = "offsets") -> list[Entry]:
    """Returns the mapping of the selection of queries, of their positions, and of the box heads of all blocks.

    Args:
        config: `Config`.
        last: str. The name of the last layer of these box heads.
    """
    entries = [
        *linear("enc_output.0", "query_selection/projection"),
        *norm("enc_output.1", "query_selection/norm"),
        *linear("enc_score_head", "query_selection/scores"),
        *box_entries("enc_bbox_head", "query_selection"),
        *linear("decoder.query_pos_head.layers.0", "query_position_hidden"),
        *linear("decoder.query_pos_head.layers.1", "query_position_output"),
    ]
    for index in range(config.integer("decoder_layers", 6)):
        entries += box_entries(f"decoder.bbox_embed.{index}", f"refined_boxes_{index}", last)
    return entries


def box_entries(theirs: str, ours: str, last: str = "offsets") -> list[Entry]:
    """Returns the mapping of the three dense layers of a box head."""
    names = ("hidden_0", "hidden_1", last)
    return [entry for index, name in enumerate(names) for entry in linear(f"{theirs}.layers.{index}", f"{ours}/{name}")]


def unused_heads(config: Config) -> tuple[str, ...]:
    """Returns the patterns of tensors of training alone: class heads before the last, embeddings of noisy labels."""
    last = config.integer("decoder_layers", 6) - 1
    return (r"denoising_class_embed\.weight$", rf"class_embed\.(?!{last}\.)\d+\.")


def duplicates() -> dict[str, str]:
    """Returns the second names of the heads, which some files have besides those of the decoder: see `Architecture.tied`."""
    heads = [f"class_embed.{index}" for index in range(_MOST_BLOCKS)]
    heads += [f"bbox_embed.{index}.layers.{layer}" for index in range(_MOST_BLOCKS) for layer in range(3)]
    names = [f"{head}.{kind}" for head in heads for kind in ("weight", "bias")]
    return {name: f"model.decoder.{name}" for name in names}
