"""Makes the folders rt_detr-*, rt_detr_v2-* and d_fine-*.

    python tests/data/checkpoints/make_detectors.py

With transformers 5.24 and torch 2.13.
"""

import numpy as np
import torch
import transformers
from writing import build, gradients, run, write

# Three feature maps of four stages.
RESNET = {
    "num_channels": 2,
    "embedding_size": 4,
    "hidden_sizes": [8, 4, 16, 8],
    "depths": [1, 2, 1, 1],
    "layer_type": "bottleneck",
    "hidden_act": "silu",
    "out_features": ["stage2", "stage3", "stage4"],
}
# Blocks of two convolutions; the first stage keeps the number of channels, and has a stride.
BASIC_RESNET = {
    **RESNET,
    "num_channels": 1,
    "hidden_sizes": [4, 4, 6, 8],
    "depths": [2, 1, 1, 1],
    "layer_type": "basic",
    "hidden_act": "gelu",
}
DETECTOR = {
    "encoder_hidden_dim": 8,
    "encoder_layers": 2,
    "encoder_ffn_dim": 10,
    "encoder_attention_heads": 2,
    "encode_proj_layers": [1, 2],
    "positional_encoding_temperature": 30,
    "encoder_activation_function": "silu",
    "activation_function": "gelu",
    "hidden_expansion": 0.5,
    "d_model": 12,
    "num_queries": 7,
    "decoder_in_channels": [8, 8, 8],
    "decoder_ffn_dim": 14,
    "decoder_n_points": 3,
    "decoder_layers": 3,
    "decoder_attention_heads": 3,
    "decoder_activation_function": "gelu",
    "num_denoising": 20,
    "num_labels": 5,
}
HGNET = {
    "num_channels": 2,
    "stem_channels": [2, 4, 6],
    "stage_in_channels": [6, 4, 6, 8],
    "stage_mid_channels": [3, 4, 2, 4],
    "stage_out_channels": [4, 6, 8, 10],
    "stage_num_blocks": [1, 2, 1, 2],
    "stage_numb_of_layers": [2, 1, 2, 1],
    "stage_kernel_size": [5, 3, 3, 5],
    "stage_light_block": [False, True, True, False],
    "hidden_sizes": [4, 6, 8, 10],
    "hidden_act": "silu",
    "use_learnable_affine_block": True,
    "out_features": ["stage2", "stage3", "stage4"],
}
PICTURE = (3, 64, 32, 2)
# So wide that the anchors at the edges are not used.
WIDE_PICTURE = (1, 32, 416, 1)
GRADIENTS = (
    "model.backbone.model.embedder.embedder.1.convolution.weight",
    "model.backbone.model.encoder.stages.1.layers.0.shortcut.1.convolution.weight",
    "model.encoder_input_proj.1.0.weight",
    "model.encoder.encoder.0.layers.1.self_attn.q_proj.weight",
    "model.encoder.fpn_blocks.1.bottlenecks.2.conv1.conv.weight",
    "model.encoder.pan_blocks.0.conv3.norm.weight",
    "model.encoder.downsample_convs.1.conv.weight",
    "model.decoder.query_pos_head.layers.0.weight",
    "model.decoder.layers.0.encoder_attn.sampling_offsets.weight",
    "model.decoder.layers.1.encoder_attn.attention_weights.bias",
    "model.decoder.layers.2.encoder_attn.value_proj.weight",
    "model.decoder.layers.1.fc1.weight",
)
D_FINE_GRADIENTS = (
    "model.backbone.model.embedder.stem2a.convolution.weight",
    "model.backbone.model.encoder.stages.1.blocks.1.layers.0.conv2.convolution.weight",
    "model.backbone.model.encoder.stages.2.blocks.0.aggregation.1.lab.scale",
    "model.encoder.fpn_blocks.1.csp_rep2.bottlenecks.0.conv1.conv.weight",
    "model.encoder.pan_blocks.0.conv4.norm.weight",
    "model.encoder.downsample_convs.1.conv2.conv.weight",
    "model.decoder_input_proj.1.0.weight",
    "model.decoder.layers.0.encoder_attn.sampling_offsets.weight",
    "model.decoder.layers.1.gateway.gate.weight",
    "model.decoder.bbox_embed.1.layers.2.weight",
    "model.decoder.lqe_layers.2.reg_conf.layers.1.weight",
)


def with_statistics(model):
    """The model, with statistics and weights of batch norms that are nobody's default."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Conv2d):  # So that pixels stay different from one another.
                module.weight.normal_(0.0, (2 / module.weight[0].numel()) ** 0.5)
            if not hasattr(module, "running_var"):
                continue
            module.running_var.uniform_(0.5, 2.0)
            module.running_mean.normal_(0.0, 0.3)
            module.weight.normal_(1.0, 0.3)
            module.bias.normal_(0.0, 0.3)
        for name, parameter in model.named_parameters():  # Points that are not all at the center of the same pixel.
            if "sampling_offsets" in name:
                parameter.mul_(3.0)
    return model


def in_memory(name):
    for theirs, ours in (("model.encoder.encoder.", "model.encoder.aifi."), (".fc1", ".mlp.fc1")):
        name = name.replace(theirs, ours)
    return name


def training_loss(model, inputs):
    """The loss of boxes and classes of all blocks, with what it is of: -1 for no object."""
    rng = np.random.default_rng(3)
    labels = np.array([[4, 1], [-1, -1], [0, -1]])
    boxes = np.concatenate([rng.uniform(0.3, 0.7, (3, 2, 2)), rng.uniform(0.2, 0.5, (3, 2, 2))], -1).astype("float32")
    targets = [
        {"class_labels": torch.tensor(each[each >= 0]), "boxes": torch.tensor(box[each >= 0])}
        for each, box in zip(labels, boxes, strict=True)
    ]
    with torch.no_grad():
        found = model(pixel_values=torch.tensor(inputs["pixel_values"]), labels=targets)
    kinds = ("loss_vfl", "loss_bbox", "loss_giou")
    loss = sum(value for key, value in found.loss_dict.items() if key.startswith(kinds))
    return {"labels": labels, "true_boxes": boxes, "loss": loss}


def detector(name, model, shape, names=None):
    """One folder. `names`: parameters whose gradients are stored, by their names in the file; with them, the loss."""
    model, best = with_statistics(model), (-1.0, 0)
    for seed in range(
        20
    ):  # Pixels whose scores are far from one another: rounding shall not change which are selected.
        pictures = np.random.default_rng(seed).normal(size=shape).astype("float32")
        scores = run(model, pixel_values=pictures.transpose(0, 3, 1, 2)).enc_outputs_class.max(-1).values
        gaps = scores.sort(descending=True).values[:, :8].diff(dim=1).abs()
        best = max(best, (float(gaps.min()), seed)) if shape != WIDE_PICTURE else (0.0, 0)
    print("least difference of scores", best)
    pictures = np.random.default_rng(best[1]).normal(size=shape).astype("float32")
    inputs = {"pixel_values": pictures.transpose(0, 3, 1, 2)}
    found = run(model, **inputs)
    more = {}
    if names:
        more = training_loss(model, inputs)
        # In float64: float32 rounds what has come through all layers to the first by 4e-5 of its scale.
        precise = {key: value.astype("float64") for key, value in inputs.items()}
        more |= gradients(model.double(), {each: in_memory(each) for each in names}, precise)
        model.float()
    write(name, model, {"images": pictures}, {"logits": found.logits, "boxes": found.pred_boxes}, **more)


def rt_detr():
    config = transformers.RTDetrConfig(
        **DETECTOR, encoder_in_channels=[4, 16, 8], backbone_config=transformers.RTDetrResNetConfig(**RESNET)
    )
    detector("rt_detr-ObjectDetection", build(transformers.RTDetrForObjectDetection, config), PICTURE, GRADIENTS)
    config = transformers.RTDetrV2Config(
        **{**DETECTOR, "hidden_expansion": 1.0, "decoder_n_points": 2, "encode_proj_layers": [2], "encoder_layers": 1},
        encoder_in_channels=[4, 6, 8],
        decoder_offset_scale=0.8,
        freeze_backbone_batch_norms=False,
        backbone_config=transformers.RTDetrResNetConfig(**BASIC_RESNET),
    )
    detector("rt_detr_v2-ObjectDetection", build(transformers.RTDetrV2ForObjectDetection, config), WIDE_PICTURE)
    config.decoder_method = "discrete"
    detector(
        "rt_detr_v2_discrete-ObjectDetection", build(transformers.RTDetrV2ForObjectDetection, config), (2, 64, 32, 1)
    )


def d_fine():
    config = transformers.DFineConfig(
        **{**DETECTOR, "decoder_n_points": [1, 3, 2], "num_feature_levels": 3, "hidden_expansion": 1.25},
        encoder_in_channels=[6, 8, 10],
        decoder_offset_scale=0.8,
        depth_mult=0.4,
        max_num_bins=6,
        reg_scale=3.0,
        up=0.7,
        top_prob_values=2,
        lqe_hidden_dim=9,
        lqe_layers=3,
        backbone_config=transformers.HGNetV2Config(**HGNET),
    )
    model = build(transformers.DFineForObjectDetection, config)
    detector("d_fine-ObjectDetection", model, PICTURE, D_FINE_GRADIENTS)
    config = transformers.DFineConfig(
        **{**DETECTOR, "d_model": 8, "decoder_attention_heads": 2, "encode_proj_layers": [2], "encoder_layers": 1},
        encoder_in_channels=[6, 8, 10],
        decoder_method="discrete",
        depth_mult=0.3,
        max_num_bins=4,
        freeze_backbone_batch_norms=False,
        backbone_config=transformers.HGNetV2Config(
            **HGNET | {"stage_light_block": [True, False, False, True], "use_learnable_affine_block": False}
        ),
    )
    detector("d_fine_discrete-ObjectDetection", build(transformers.DFineForObjectDetection, config), (2, 64, 32, 2))


if __name__ == "__main__":
    rt_detr()
    d_fine()
