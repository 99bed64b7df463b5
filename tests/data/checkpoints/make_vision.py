"""Makes the folders vit-*, deit-*, dinov*, swin-*, yolos-*, detr-*, segformer-* and clip*.

    python tests/data/checkpoints/make_vision.py

With transformers 5.23 and torch 2.13.
"""

import functools
import re

import numpy as np
import torch
import transformers
from writing import build, gradients, ragged_tokens, run, write

TOWER = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "patch_size": 4,
    "num_channels": 2,
}
# Not as wide as high: what mixes them up shows.
VIT = {**TOWER, "image_size": [8, 12], "hidden_act": "gelu_new", "pooler_act": "silu"}
DEIT = {**TOWER, "image_size": [12, 8], "hidden_act": "silu", "pooler_act": "relu", "pooler_output_size": 7}
# transformers always resizes the table of DINOv2, which has to be a square for that.
DINOV2 = {name: value for name, value in TOWER.items() if name != "intermediate_size"} | {
    "image_size": 12,
    "hidden_act": "relu",
    "mlp_ratio": 3,
    "layerscale_value": 0.3,
}
# Not as wide as high, with two wavelengths for each side; augmentation is off in evaluation.
DINOV3 = {
    **TOWER,
    "hidden_size": 24,
    "image_size": [8, 12],
    "hidden_act": "relu",
    "layerscale_value": 0.3,
    "num_register_tokens": 3,
    "rope_theta": 20.0,
    "key_bias": True,
    "query_bias": False,
    "pos_embed_shift": 0.2,
    "pos_embed_jitter": 1.3,
    "pos_embed_rescale": None,
}
# SwiGLU without registers.
GATED_DINOV3 = {**DINOV3, "hidden_act": "silu", "num_register_tokens": 0, "use_gated_mlp": True, "mlp_bias": False}
GATED_DINOV3 |= {"key_bias": False, "query_bias": True, "value_bias": False, "proj_bias": False}
# The last stage is one row of two pixels, and a row of the first is left over.
DINOV3_CONVNEXT = {
    "image_size": [9, 16],
    "num_channels": 2,
    "hidden_sizes": [4, 6],
    "depths": [1, 2],
    "hidden_act": "relu",
    "layer_scale_init_value": 0.3,
}
# Padded everywhere: 27 x 22 pixels are 14 x 11 patches, in windows of 3 they are 15 x 12, and merging makes 7 x 6 of them.
SWIN = {
    "image_size": [27, 22],
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [2, 3],
    "num_heads": [2, 4],
    "window_size": 3,
    "mlp_ratio": 1.5,
    "num_channels": 2,
    "hidden_act": "silu",
}
# Windows that divide the grid, of the size of the last one, and a table of positions.
SMALL_SWIN = {**SWIN, "image_size": 16, "depths": [2, 2], "window_size": 4, "use_absolute_embeddings": True}
# Windows that divide the grid, of the size of the last one.
SMALL_SWIN = {**SWIN, "image_size": 16, "depths": [2, 2], "window_size": 4}
# The last row and columns of the pictures are no whole patches; the tables are for 3 x 2 patches, the pictures have 2 x 4.
YOLOS = {
    **TOWER,
    "image_size": [12, 8],
    "hidden_act": "gelu_new",
    "num_detection_tokens": 5,
    "num_hidden_layers": 3,
}
YOLOS_PICTURE = {"image_size": [9, 18], "num_channels": 2}
# Two stages: 17 x 26 pixels are a feature map of 3 x 4 pixels.
DETR = {
    "use_timm_backbone": False,
    "num_queries": 5,
    "d_model": 12,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_ffn_dim": 10,
    "decoder_ffn_dim": 14,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 3,
    "activation_function": "silu",
    "num_channels": 2,
}
RESNET = {
    "num_channels": 2,
    "embedding_size": 4,
    "hidden_sizes": [8, 12],
    "depths": [1, 2],
    "layer_type": "bottleneck",
    "hidden_act": "silu",
    "downsample_in_bottleneck": True,
    "out_features": ["stage2"],
}
# Two convolutions in a block, a stride in the first stage, which keeps the number of channels.
BASIC_RESNET = {
    **RESNET,
    "layer_type": "basic",
    "hidden_sizes": [4, 6],
    "hidden_act": "gelu",
    "downsample_in_bottleneck": False,
    "downsample_in_first_stage": True,
}
DETR_PICTURE = {"image_size": [17, 26], "num_channels": 2}
# Three stages: patches of 5 pixels every 3; the last rows of the keys of the first stage are left over.
SEGFORMER = {
    "num_channels": 2,
    "num_encoder_blocks": 3,
    "depths": [1, 2, 1],
    "sr_ratios": [3, 2, 1],
    "hidden_sizes": [4, 6, 10],
    "patch_sizes": [5, 3, 2],
    "strides": [3, 2, 1],
    "num_attention_heads": [2, 3, 5],
    "mlp_ratios": [2, 3, 1],
    "hidden_act": "silu",
    "decoder_hidden_size": 7,
    "semantic_loss_ignore_index": 9,
}
SEGFORMER_PICTURE = {"image_size": [17, 26], "num_channels": 2}
CLIP_TEXT = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 13,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "pad_token_id": 1,
    "projection_dim": 6,
}
CLIP_VISION = {**TOWER, "image_size": 12, "projection_dim": 6, "hidden_act": "relu"}
TOKENS = {"tokens": "last_hidden_state"}
POOLED = {**TOKENS, "pooled": "pooler_output"}
LOGITS = {"logits": "logits"}
END_ID = 58
GRADIENTS = (
    "vit.embeddings.cls_token",
    "vit.embeddings.position_embeddings",
    "vit.embeddings.patch_embeddings.projection.weight",
    "vit.encoder.layer.0.attention.attention.query.weight",
    "vit.encoder.layer.0.attention.attention.key.bias",
    "vit.encoder.layer.1.attention.output.dense.weight",
    "vit.encoder.layer.1.output.dense.bias",
    "vit.encoder.layer.0.layernorm_before.weight",
    "classifier.weight",
)
DINOV3_GRADIENTS = (
    "embeddings.register_tokens",
    "embeddings.patch_embeddings.weight",
    "layer.0.attention.q_proj.weight",
    "layer.0.attention.k_proj.bias",
    "layer.0.layer_scale1.lambda1",
    "layer.0.mlp.up_proj.weight",
)
YOLOS_GRADIENTS = (
    "vit.embeddings.detection_tokens",
    "vit.embeddings.position_embeddings",
    "vit.encoder.mid_position_embeddings",
    "vit.encoder.layer.0.attention.attention.query.weight",
    "vit.encoder.layer.2.output.dense.bias",
    "class_labels_classifier.layers.0.weight",
)
DETR_GRADIENTS = (
    "model.input_projection.weight",
    "model.query_position_embeddings.weight",
    "model.backbone.conv_encoder.model.encoder.stages.1.layers.0.layer.1.convolution.weight",
    "model.encoder.layers.0.self_attn.q_proj.weight",
    "model.decoder.layers.0.encoder_attn.k_proj.weight",
    "model.decoder.layers.1.fc1.weight",
    "model.decoder.layernorm.weight",
    "class_labels_classifier.weight",
)
SEGFORMER_GRADIENTS = (
    "segformer.encoder.patch_embeddings.0.proj.weight",
    "segformer.encoder.block.0.0.attention.self.sr.weight",
    "segformer.encoder.block.1.1.attention.self.layer_norm.bias",
    "segformer.encoder.block.1.0.mlp.dwconv.dwconv.weight",
    "segformer.encoder.block.2.0.attention.self.key.weight",
    "decode_head.linear_c.1.proj.weight",
    "decode_head.linear_fuse.weight",
    "decode_head.batch_norm.weight",
    "decode_head.classifier.weight",
)
CONVNEXT_GRADIENTS = (
    "stages.0.downsample_layers.0.weight",
    "stages.1.downsample_layers.0.weight",
    "stages.1.layers.0.depthwise_conv.weight",
    "stages.1.layers.1.gamma",
)


def images(config, seed=0):
    """Three pictures, `(B, height, width, channels)`."""
    size = config["image_size"]
    size = [size, size] if isinstance(size, int) else size
    return np.random.default_rng(seed).normal(size=(3, *size, config["num_channels"])).astype("float32")


def pixels(pictures):
    """As transformers takes them."""
    return {"pixel_values": pictures.transpose(0, 3, 1, 2)}


def texts():
    """Tokens that end with the end token, and padding behind it."""
    token_ids, mask = ragged_tokens(END_ID)
    ends = mask.sum(axis=1) - 1
    token_ids[np.arange(len(ends)), ends] = END_ID
    return np.where(mask, token_ids, 1), mask


def image_model(name, cls, config, names, pictures=None, **more):
    """One folder of a model of images alone, by default of the size of the config."""
    model, pictures = build(cls, config), images(config.to_dict() if pictures is None else pictures)
    found = run(model, **pixels(pictures))
    write(name, model, {"images": pictures}, {our: found[their] for our, their in names.items()}, **more)


def text_model(name, cls, config, names):
    """One folder of a model of texts alone."""
    model, (token_ids, mask) = build(cls, config), texts()
    found = run(model, input_ids=token_ids, attention_mask=mask)
    inputs = {"token_ids": token_ids, "padding_mask": mask}
    write(name, model, inputs, {our: found[their] for our, their in names.items()})


def pair_model(name, config):
    """One folder of a model of images and texts."""
    model, pictures, (token_ids, mask) = build(transformers.CLIPModel, config), images(CLIP_VISION), texts()
    found = run(model, input_ids=token_ids, attention_mask=mask, **pixels(pictures))
    outputs = {
        "logits": found.logits_per_image,
        "image_embedding": found.image_embeds,
        "text_embedding": found.text_embeds,
    }
    write(name, model, {"images": pictures, "token_ids": token_ids, "padding_mask": mask}, outputs)


def _in_memory(name):
    for theirs, ours in (
        ("encoder.layer", "layers"),
        ("attention.attention.query", "attention.q_proj"),
        ("attention.attention.key", "attention.k_proj"),
        ("attention.output.dense", "attention.o_proj"),
        ("output.dense", "mlp.fc2"),
    ):
        name = name.replace(theirs, ours)
    return name


def vision_transformers():
    """ViT, DeiT and DINOv2."""
    config = transformers.ViTConfig(**VIT, num_labels=5, pooler_output_size=7)
    image_model("vit-Model", transformers.ViTModel, config, POOLED)
    plain = transformers.ViTConfig(**TOWER, image_size=8, qkv_bias=False)
    image_model(
        "vit-Model-without-pooler", functools.partial(transformers.ViTModel, add_pooling_layer=False), plain, TOKENS
    )
    classifier = transformers.ViTForImageClassification
    # Transformers has other names in memory than in the file.
    names = {name: _in_memory(name) for name in GRADIENTS}
    found = gradients(build(classifier, config), names, pixels(images(VIT)))
    image_model("vit-ImageClassification", classifier, config, LOGITS, **found)
    config = transformers.DeiTConfig(**DEIT, num_labels=5, qkv_bias=False)
    image_model("deit-Model", transformers.DeiTModel, config, POOLED)
    image_model("deit-ImageClassification", transformers.DeiTForImageClassification, config, LOGITS)
    names = LOGITS | {"class_logits": "cls_logits", "distillation_logits": "distillation_logits"}
    config = transformers.DeiTConfig(**DEIT, num_labels=5)
    with_teacher = transformers.DeiTForImageClassificationWithTeacher
    image_model("deit-ImageClassificationWithTeacher", with_teacher, config, names)
    config = transformers.Dinov2Config(**DINOV2, num_labels=5)
    image_model("dinov2-Model", transformers.Dinov2Model, config, TOKENS)
    config = transformers.Dinov2Config(**DINOV2, num_labels=5, use_swiglu_ffn=True, use_mask_token=False)
    image_model("dinov2-ImageClassification", transformers.Dinov2ForImageClassification, config, LOGITS)
    config = transformers.Dinov2WithRegistersConfig(**DINOV2, num_labels=5, num_register_tokens=3)
    image_model("dinov2_with_registers-Model", transformers.Dinov2WithRegistersModel, config, TOKENS)
    cls = transformers.Dinov2WithRegistersForImageClassification
    image_model("dinov2_with_registers-ImageClassification", cls, config, LOGITS)


def dinov3():
    for name, values in (("dinov3_vit-Model", DINOV3), ("dinov3_vit_gated-Model", GATED_DINOV3)):
        config = transformers.DINOv3ViTConfig(**values)
        more = {}
        if name == "dinov3_vit-Model":
            names = {each: each.replace("layer.0", "model.layer.0") for each in DINOV3_GRADIENTS}
            model = build(transformers.DINOv3ViTModel, config)
            more = gradients(model, names, pixels(images(values)), output="last_hidden_state")
        image_model(name, transformers.DINOv3ViTModel, config, TOKENS, **more)
    cls, config = transformers.DINOv3ConvNextModel, transformers.DINOv3ConvNextConfig(**DINOV3_CONVNEXT)
    names = {each: each.replace("stages", "model.stages") for each in CONVNEXT_GRADIENTS}
    more = gradients(build(cls, config), names, pixels(images(DINOV3_CONVNEXT)), output="last_hidden_state")
    image_model("dinov3_convnext-Model", cls, config, TOKENS, **more)


def swins():
    config = transformers.SwinConfig(**SWIN, num_labels=5)
    image_model("swin-Model", transformers.SwinModel, config, POOLED)
    config = transformers.SwinConfig(**SMALL_SWIN, num_labels=5)
    image_model("swin-ImageClassification", transformers.SwinForImageClassification, config, LOGITS)


def yolos():
    config = transformers.YolosConfig(
        **{**YOLOS, "image_size": [13, 11]}, qkv_bias=False, use_mid_position_embeddings=False
    )
    image_model("yolos-Model", transformers.YolosModel, config, POOLED, YOLOS_PICTURE)
    cls, config = transformers.YolosForObjectDetection, transformers.YolosConfig(**YOLOS, num_labels=4)
    # Transformers has another name in memory than in the file.
    memory = {name: name.replace("encoder.mid", "encoder.interpolation.mid") for name in YOLOS_GRADIENTS}
    more = gradients(build(cls, config), memory, pixels(images(YOLOS_PICTURE)))
    names = LOGITS | {"boxes": "pred_boxes"}
    image_model("yolos-ObjectDetection", cls, config, names, YOLOS_PICTURE, **more)


def detrs():
    config = transformers.DetrConfig(**DETR, backbone_config=transformers.ResNetConfig(**BASIC_RESNET))
    model, pictures = with_statistics(build(transformers.DetrModel, config)), images(DETR_PICTURE)
    write("detr-Model", model, {"images": pictures}, {"tokens": run(model, **pixels(pictures)).last_hidden_state})
    config = transformers.DetrConfig(**DETR, backbone_config=transformers.ResNetConfig(**RESNET), num_labels=4)
    model = with_statistics(build(transformers.DetrForObjectDetection, config))
    found, mask = run(model, **pixels(pictures)), np.ones(pictures.shape[:3], bool)
    for parameter in model.parameters():  # transformers trains no weight of the backbone.
        parameter.requires_grad_(True)
    memory = {name: _detr_in_memory(name) for name in DETR_GRADIENTS}
    more = gradients(model, memory, pixels(pictures))
    # Padded below and on the right.
    mask[0, 11:], mask[1, :, 18:] = False, False
    padded = run(model, **pixels(pictures), pixel_mask=mask.astype("int64"))
    more |= {"pixel_mask": mask, "padded_logits": padded.logits, "padded_boxes": padded.pred_boxes}
    outputs = {"logits": found.logits, "boxes": found.pred_boxes}
    write("detr-ObjectDetection", model, {"images": pictures}, outputs, **more)


def with_statistics(model):
    """The model, with statistics and weights of frozen batch norms that are nobody's default."""
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("normalization.running_var"):
                buffer.uniform_(0.5, 2.0)
            elif "normalization." in name:
                buffer.add_(0.3 * torch.randn_like(buffer))
    return model


def _detr_in_memory(name):
    for theirs, ours in (("backbone.conv_encoder", "backbone"), (".fc1", ".mlp.fc1")):
        name = name.replace(theirs, ours)
    return name


def _segformer_in_memory(name):
    for theirs, ours in (
        (r"encoder\.patch_embeddings\.(\d)", r"stages.\1.patch_embeddings"),
        (r"encoder\.block\.(\d)\.(\d)", r"stages.\1.blocks.\2"),
        (r"attention\.self\.sr", "attention.sequence_reduction.sequence_reduction"),
        (r"attention\.self\.layer_norm", "attention.sequence_reduction.layer_norm"),
        (r"attention\.self\.key", "attention.k_proj"),
        ("linear_c", "linear_projections"),
    ):
        name = re.sub(theirs, ours, name)
    return name


def segformers():
    config = transformers.SegformerConfig(**SEGFORMER)
    model, pictures = build(transformers.SegformerModel, config), images(SEGFORMER_PICTURE)
    tokens = run(model, **pixels(pictures)).last_hidden_state.flatten(2).transpose(1, 2)
    write("segformer-Model", model, {"images": pictures}, {"tokens": tokens})
    config = transformers.SegformerConfig(**SEGFORMER, num_labels=5)
    cls = transformers.SegformerForImageClassification
    image_model("segformer-ImageClassification", cls, config, LOGITS, SEGFORMER_PICTURE)
    model = build(transformers.SegformerForSemanticSegmentation, config)
    with torch.no_grad():  # Statistics that are nobody's default.
        norm = model.decode_head.batch_norm
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
    logits = run(model, **pixels(pictures)).logits.permute(0, 2, 3, 1)
    names = {name: _segformer_in_memory(name) for name in SEGFORMER_GRADIENTS}
    more = gradients(model, names, pixels(pictures))
    more["direction"] = more["direction"].transpose(0, 2, 3, 1)
    write("segformer-SemanticSegmentation", model, {"images": pictures}, {"logits": logits}, **more)


def clips():
    old = {**CLIP_TEXT, "eos_token_id": 2}
    pair_model("clip-Model", transformers.CLIPConfig(text_config=old, vision_config=CLIP_VISION, projection_dim=6))
    config = transformers.CLIPConfig(text_config=old, vision_config=CLIP_VISION, num_labels=5)
    model, pictures = build(transformers.CLIPForImageClassification, config), images(CLIP_VISION)
    logits = run(model, **pixels(pictures)).logits
    write("clip-ImageClassification", model, {"images": pictures}, {"logits": logits})
    config = transformers.CLIPTextConfig(**CLIP_TEXT, eos_token_id=END_ID)
    text_model("clip_text_model-Model", transformers.CLIPTextModel, config, POOLED)
    names = TOKENS | {"embedding": "text_embeds"}
    text_model("clip_text_model-ModelWithProjection", transformers.CLIPTextModelWithProjection, config, names)
    config = transformers.CLIPVisionConfig(**CLIP_VISION)
    image_model("clip_vision_model-Model", transformers.CLIPVisionModel, config, POOLED)
    names = TOKENS | {"embedding": "image_embeds"}
    image_model("clip_vision_model-ModelWithProjection", transformers.CLIPVisionModelWithProjection, config, names)


if __name__ == "__main__":
    vision_transformers()
    dinov3()
    swins()
    yolos()
    detrs()
    segformers()
    clips()
