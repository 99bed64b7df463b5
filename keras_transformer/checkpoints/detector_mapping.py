"""The mapping that RT-DETR and its successors share: the neck, the selection of queries, and the blocks."""

from __future__ import annotations

from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.detector_settings import encoder_size
from keras_transformer.checkpoints.image_mapping import convolution_entries
from keras_transformer.checkpoints.mapping import Entry, attention, linear, norm

# No published decoder has more.
_MOST_BLOCKS = 12


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
