"""SegFormer: transformers' `SegformerModel` and its heads."""

from __future__ import annotations

import keras

from keras_transformer import tasks
from keras_transformer.checkpoints.architecture import Architecture, Head
from keras_transformer.checkpoints.building.images import depthwise_entries, integers, patch_entries, point_entries
from keras_transformer.checkpoints.config import Config
from keras_transformer.checkpoints.errors import ConfigError
from keras_transformer.checkpoints.layouts import Fused, PointConvolution
from keras_transformer.checkpoints.mapping import Entry, attention, batch_norm, linear, norm
from keras_transformer.models import SegFormer, SegFormerSize

# transformers has this epsilon in every norm, whatever "layer_norm_eps" says.
_EPSILON = 1e-5


def _segmenter(backbone: keras.Model, config: Config) -> keras.Model:
    return tasks.SemanticSegmenter(
        backbone,
        config.num_labels,
        hidden_dim=config.integer("decoder_hidden_size", 256),
        dropout=config.number("classifier_dropout_prob", 0.1),
    )


def _segmenter_entries(config: Config, prefix: str) -> list[Entry]:
    stages = range(len(_size(config).hidden_dims))
    entries = []
    for stage in stages:
        entries += linear(f"decode_head.linear_c.{stage}.proj", f"head_projection_{stage}")
    # Its inputs are the stages, the last first.
    fusions = tuple(f"head_fusion_{stage}/kernel" for stage in reversed(stages))
    return [
        *entries,
        Entry(("decode_head.linear_fuse.weight",), fusions, Fused(PointConvolution(), axis=1)),
        *batch_norm("decode_head.batch_norm", "head_norm"),
        *point_entries("decode_head.classifier", "logits"),
    ]


class Segformer(Architecture):
    """SegFormer: Xie et al., arXiv 2105.15203. The model takes images of any size."""

    remark = "segmentation, classification"
    base_prefix = "segformer."
    ignored = (r"num_batches_tracked$",)
    heads = {
        "Model": Head(),
        "SemanticSegmentation": Head(_segmenter, _segmenter_entries),
        "ImageClassification": Head(
            lambda backbone, config: tasks.ImageClassifier(
                backbone, config.num_labels, pooling="mean", activation=None
            ),
            lambda config, prefix: linear("classifier", "logits"),
        ),
    }

    def backbone(self, config: Config) -> keras.Model:
        return SegFormer(
            _size(config),
            num_channels=config.integer("num_channels", 3),
            activation=config.activation(),
            dropout=config.number("hidden_dropout_prob", 0.0),
            attention_dropout=config.number("attention_probs_dropout_prob", 0.0),
            stochastic_depth=config.number("drop_path_rate", 0.1),
            layer_norm_epsilon=_EPSILON,
        )

    def entries(self, config: Config) -> list[Entry]:
        size, entries = _size(config), []
        for stage, depth in enumerate(size.num_layers):
            embedding = f"encoder.patch_embeddings.{stage}"
            entries += patch_entries(f"{embedding}.proj", f"stage_{stage}_projection")
            entries += norm(f"{embedding}.layer_norm", f"stage_{stage}_embedding_norm")
            entries += norm(f"encoder.layer_norm.{stage}", f"feature_map_{stage}")
            for index in range(depth):
                theirs, ours = f"encoder.block.{stage}.{index}", f"stage_{stage}_block_{index}"
                entries += _block(theirs, ours, size.reduction_ratios[stage] > 1)
        return entries


def _size(config: Config) -> SegFormerSize:
    stages = config.integer("num_encoder_blocks", 4)
    size = SegFormerSize(
        integers(config, "hidden_sizes", (32, 64, 160, 256)),
        integers(config, "depths", (2, 2, 2, 2)),
        integers(config, "num_attention_heads", (1, 2, 5, 8)),
        integers(config, "patch_sizes", (7, 3, 3, 3)),
        integers(config, "strides", (4, 2, 2, 2)),
        integers(config, "sr_ratios", (8, 4, 2, 1)),
        integers(config, "mlp_ratios", (4, 4, 4, 4)),
    )
    config.check_depth("depths", sum(size.num_layers))
    if {len(each) for each in size} != {stages}:
        raise ConfigError(
            f"{config.source}: 'depths' and the other lists must have 'num_encoder_blocks' {stages} numbers."
        )
    return size


def _block(theirs: str, ours: str, is_reduced: bool) -> list[Entry]:
    self_attention, mixer = f"{theirs}.attention.self", f"{ours}/self_attention"
    entries = attention(
        f"{mixer}/attention",
        query=f"{self_attention}.query",
        key=f"{self_attention}.key",
        value=f"{self_attention}.value",
        output=f"{theirs}.attention.output.dense",
    )
    if is_reduced:
        entries += patch_entries(f"{self_attention}.sr", f"{mixer}/reduction")
        entries += norm(f"{self_attention}.layer_norm", f"{mixer}/reduction_norm")
    return [
        *entries,
        *norm(f"{theirs}.layer_norm_1", f"{ours}/mixer_residual/norm"),
        *norm(f"{theirs}.layer_norm_2", f"{ours}/feedforward_residual/norm"),
        *linear(f"{theirs}.mlp.dense1", f"{ours}/feedforward/hidden"),
        *depthwise_entries(f"{theirs}.mlp.dwconv.dwconv", f"{ours}/feedforward/depthwise"),
        *linear(f"{theirs}.mlp.dense2", f"{ours}/feedforward/output"),
    ]
