"""Segment Anything: transformers' `SamModel`."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.images import image_options, integers, patch_entries, point_entries
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.layouts import Expanded, GridTable, Joined
from keras_transformer.checkpoints.mapping import Entry, attention, fused_linear, linear, norm, same
from keras_transformer.models import SAM, SAMSize
from keras_transformer.vision import MaskEmbedding

_FREQUENCIES = "shared_image_embedding.positional_embedding"


class Sam(Architecture):
    """Segment Anything: Kirillov et al., arXiv 2304.02643. The backbone is the image encoder."""

    remark = "segmentation by points, boxes and masks"
    base_prefix = "vision_encoder."
    tied = {"prompt_encoder.shared_embedding.positional_embedding": _FREQUENCIES}
    heads = {
        "Model": Head(
            lambda backbone, config: _segmenter(backbone, config), lambda config, prefix: _segmenter_entries(config)
        )
    }

    def backbone(self, config: Config) -> keras.Model:
        vision = config.section("vision_config")
        return SAM(
            _size(vision),
            **image_options(vision, 1024),
            output_dim=vision.integer("output_channels", 256),
            window_size=vision.integer("window_size", 14),
            use_position_embedding=vision.flag("use_abs_pos", True),
            use_relative_positions=vision.flag("use_rel_pos", True),
            use_attention_bias=vision.flag("qkv_bias", True),
            activation=vision.activation(),
            attention_dropout=vision.number("attention_dropout", 0.0),
            layer_norm_epsilon=vision.number("layer_norm_eps", 1e-6),
        )

    def entries(self, config: Config) -> list[Entry]:
        vision = config.section("vision_config")
        entries = patch_entries("patch_embed.projection", "patch_embedding/projection")
        if vision.flag("use_abs_pos", True):
            options = image_options(vision, 1024)
            rows, columns = (
                side // part for side, part in zip(options["image_size"], options["patch_size"], strict=True)
            )
            entries.append(Entry(("pos_embed",), ("patch_embedding/position_embeddings",), GridTable(rows, columns)))
        for index in range(_size(vision).num_layers):
            entries += _block(f"layers.{index}", f"encoder_block_{index}", vision)
        return [
            *entries,
            *point_entries("neck.conv1", "neck_projection", bias=False),
            *norm("neck.layer_norm1", "neck_projection_norm"),
            *patch_entries("neck.conv2", "neck_convolution", bias=False),
            *norm("neck.layer_norm2", "features"),
        ]


def _size(vision: Config) -> SAMSize:
    depth, width = vision.integer("num_hidden_layers", 12), vision.integer("hidden_size", 768)
    vision.check_depth("num_hidden_layers", depth)
    intermediate = vision.integer("mlp_dim", int(width * vision.number("mlp_ratio", 4.0)))
    blocks = vision.get("global_attn_indexes", (2, 5, 8, 11))
    # An index beyond the last block is of none.
    blocks = () if blocks in ([], ()) else integers(vision, "global_attn_indexes", blocks, minimum=0)
    return SAMSize(
        depth,
        width,
        vision.integer("num_attention_heads", 12),
        intermediate,
        tuple(index for index in blocks if index < depth),
    )


def _block(theirs: str, ours: str, vision: Config) -> list[Entry]:
    mixer = f"{ours}/window_attention/attention"
    projections = [f"{mixer}/{name}" for name in ("query", "key", "value")]
    entries = fused_linear(f"{theirs}.attn.qkv", projections, bias=vision.flag("qkv_bias", True))
    if vision.flag("use_rel_pos", True):
        for axis, name in (("h", "row"), ("w", "column")):
            entries.append(same(f"{theirs}.attn.rel_pos_{axis}", f"{mixer}/position_bias/{name}_embeddings"))
    return [
        *entries,
        *linear(f"{theirs}.attn.proj", f"{mixer}/attention_output", inputs=2),
        *norm(f"{theirs}.layer_norm1", f"{ours}/mixer_residual/norm"),
        *norm(f"{theirs}.layer_norm2", f"{ours}/feedforward_residual/norm"),
        *linear(f"{theirs}.mlp.lin1", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.mlp.lin2", f"{ours}/feedforward/output"),
    ]


def _segmenter(backbone: keras.Model, config: Config) -> keras.Model:
    vision, prompt, decoder = (
        config.section(name) for name in ("vision_config", "prompt_encoder_config", "mask_decoder_config")
    )
    _check(vision, prompt, decoder)
    return tasks.PromptedSegmenter(
        backbone,
        decoder.integer("num_multimask_outputs", 3),
        _decoder_size(decoder),
        mask_embedding=MaskEmbedding(
            prompt.integer("mask_input_channels", 16), prompt.activation(), prompt.number("layer_norm_eps", 1e-6)
        ),
        activation=decoder.activation(default="relu"),
        layer_norm_epsilon=decoder.number("layer_norm_eps", 1e-6),
    )


def _decoder_size(decoder: Config) -> tasks.MaskDecoderSize:
    size = tasks.MaskDecoderSize(
        decoder.integer("num_hidden_layers", 2),
        decoder.integer("num_attention_heads", 8),
        decoder.integer("mlp_dim", 2048),
        # transformers reads the setting for the attention after the blocks alone.
        last_attention_reduction=decoder.integer("attention_downsample_rate", 2),
        score_layers=decoder.integer("iou_head_depth", 3, minimum=2),
        score_dim=decoder.integer("iou_head_hidden_dim", 256),
    )
    for name, depth in (("num_hidden_layers", size.num_layers), ("iou_head_depth", size.score_layers)):
        decoder.check_depth(name, depth)
    decoder.check_depth("num_multimask_outputs", decoder.integer("num_multimask_outputs", 3))
    return size


def _check(vision: Config, prompt: Config, decoder: Config) -> None:
    """Raises `ConfigError` for sections that do not fit together."""
    width, image, patch = (
        vision.integer(name, default)
        for name, default in (("output_channels", 256), ("image_size", 1024), ("patch_size", 16))
    )
    prompt.only("num_point_embeddings", 4, 4)
    for section, name, default, expected in (
        (prompt, "hidden_size", 256, width),
        (decoder, "hidden_size", 256, width),
        (prompt, "image_size", 1024, image),
        (prompt, "patch_size", 16, patch),
        (vision, "num_pos_feats", 128, width // 2),
    ):
        if section.integer(name, default) != expected:
            raise ConfigError(
                f"{section.source}: {name!r} is {section.integer(name, default)}; it must be {expected} to fit the image "
                "encoder."
            )


def _segmenter_entries(config: Config) -> list[Entry]:
    decoder = config.section("mask_decoder_config")
    size, num_masks = _decoder_size(decoder), decoder.integer("num_multimask_outputs", 3)
    tokens = Entry(
        ("mask_decoder.iou_token.weight", "mask_decoder.mask_tokens.weight"),
        ("output_tokens/embeddings",),
        Joined((1, 1 + num_masks)),
    )
    entries = [same(_FREQUENCIES, "positions/frequencies"), tokens, *_prompt_entries("prompt_encoder")]
    for index in range(size.num_layers):
        entries += _two_way_block(f"mask_decoder.transformer.layers.{index}", f"two_way_block_{index}")
    final = "mask_decoder.transformer.final_attn_token_to_image"
    entries += [
        *_attention(final, "last_attention"),
        *norm("mask_decoder.transformer.layer_norm_final_attn", "last_norm"),
        *patch_entries("mask_decoder.upscale_conv1", "upscaling_0"),
        *norm("mask_decoder.upscale_layer_norm", "upscaling_norm"),
        *patch_entries("mask_decoder.upscale_conv2", "upscaling_1"),
        *_dense_stack("mask_decoder.iou_prediction_head", "score", size.score_layers),
    ]
    for index in range(1 + num_masks):
        entries += _dense_stack(f"mask_decoder.output_hypernetworks_mlps.{index}", f"kernel_{index}", 3)
    return entries


def _prompt_entries(theirs: str) -> list[Entry]:
    points = tuple(f"{theirs}.point_embed.{index}.weight" for index in range(4))
    return [
        Entry(points, ("point_embedding/embeddings",), Joined((1, 1, 1, 1))),
        Entry((f"{theirs}.not_a_point_embed.weight",), ("point_embedding/not_a_point",), Expanded()),
        Entry((f"{theirs}.no_mask_embed.weight",), ("mask_embedding/no_mask",), Expanded()),
        *patch_entries(f"{theirs}.mask_embed.conv1", "mask_embedding/convolution_0"),
        *norm(f"{theirs}.mask_embed.layer_norm1", "mask_embedding/norm_0"),
        *patch_entries(f"{theirs}.mask_embed.conv2", "mask_embedding/convolution_1"),
        *norm(f"{theirs}.mask_embed.layer_norm2", "mask_embedding/norm_1"),
        *point_entries(f"{theirs}.mask_embed.conv3", "mask_embedding/projection"),
    ]


def _two_way_block(theirs: str, ours: str) -> list[Entry]:
    entries = []
    for index, (part, name) in enumerate(
        (
            ("self_attention", "self_attn"),
            ("cross_attention", "cross_attn_token_to_image"),
            ("feedforward", None),
            ("image_attention", "cross_attn_image_to_token"),
        )
    ):
        entries += norm(f"{theirs}.layer_norm{index + 1}", f"{ours}/{part}_norm")
        entries += [] if name is None else _attention(f"{theirs}.{name}", f"{ours}/{part}")
    return [
        *entries,
        *linear(f"{theirs}.mlp.lin1", f"{ours}/feedforward/hidden"),
        *linear(f"{theirs}.mlp.lin2", f"{ours}/feedforward/output"),
    ]


def _attention(theirs: str, ours: str) -> list[Entry]:
    query, key, value, output = (f"{theirs}.{name}_proj" for name in ("q", "k", "v", "out"))
    return attention(ours, query=query, key=key, value=value, output=output)


def _dense_stack(theirs: str, ours: str, num_layers: int) -> list[Entry]:
    entries = [*linear(f"{theirs}.proj_in", f"{ours}_hidden_0"), *linear(f"{theirs}.proj_out", f"{ours}_output")]
    for index in range(num_layers - 2):
        entries += linear(f"{theirs}.layers.{index}", f"{ours}_hidden_{index + 1}")
    return entries
