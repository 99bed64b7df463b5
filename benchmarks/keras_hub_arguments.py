"""Arguments and inputs of small models of KerasHub: what the rules of `keras_hub_cases.py` do not give."""

import dataclasses
from typing import Any

_SOURCE = "keras_hub.src.models"


@dataclasses.dataclass(frozen=True)
class Part:
    """A layer or model that is an argument of another one.

    Args:
        name: class in `keras_hub.models`, or the path of another one.
        arguments: those that the rules do not give.
    """

    name: str
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)


# What a class must be told, by the name of the argument.
SIZES = {
    **dict.fromkeys(("vocabulary_size", "vocab_size"), 50),
    **dict.fromkeys(("num_layers", "num_layers_enc", "num_layers_dec", "num_hidden_layers"), 2),
    **dict.fromkeys(("num_spatial_layers", "num_temporal_layers", "num_auxiliary_layers"), 1),
    **dict.fromkeys(("num_heads", "num_attention_heads", "num_query_heads", "num_experts"), 4),
    **dict.fromkeys(("hidden_dim", "hidden_size", "embed_dim", "projection_filters"), 32),
    **dict.fromkeys(("intermediate_dim", "mlp_dim"), 48),
    **dict.fromkeys(("moe_intermediate_dim", "shared_expert_intermediate_dim", "shared_expert_intermediate_size"), 24),
    **dict.fromkeys(("embedding_dim", "projection_dim"), 16),
    **dict.fromkeys(("head_dim", "head_size", "patch_size"), 8),
    **{"num_key_value_heads": 2, "top_k": 2, "num_classes": 3, "preprocessor": None},
    **{"image_shape": (32, 32, 3), "image_size": 32, "num_frames": 2},
}
# What it would make too long by default.
LENGTHS = {
    **dict.fromkeys(("max_sequence_length", "max_decoder_sequence_length", "max_position_embeddings"), 32),
    **{"max_encoder_sequence_length": 64, "sliding_window": 4, "sliding_window_size": 4},
}
_TOWER = {"patch_size": 8, "image_shape": (32, 32, 3)}
_RESNET = {
    "input_conv_filters": [64],
    "input_conv_kernel_sizes": [7],
    "stackwise_num_filters": [64, 12, 16],
    "stackwise_num_blocks": [2, 2, 2],
    "stackwise_num_strides": [1, 2, 2],
    "block_type": "bottleneck_block",
}
_DEEP_RESNET = {
    **_RESNET,
    "stackwise_num_filters": [64, 12, 16, 20],
    "stackwise_num_blocks": [2, 2, 2, 2],
    "stackwise_num_strides": [1, 2, 2, 2],
    "block_type": "basic_block",
}
_MIT = {
    "layerwise_depths": [2, 2],
    "image_shape": (32, 32, 3),
    "hidden_dims": [8, 16],
    "layerwise_num_heads": [1, 2],
    "layerwise_sr_ratios": [8, 4],
    "max_drop_path_rate": 0.1,
    "layerwise_patch_sizes": [7, 3],
    "layerwise_strides": [4, 2],
}
_HGNET = {
    "stem_channels": [3, 8, 8],
    "stackwise_stage_filters": [[8, 8, 16, 1, 1, 3], [16, 8, 32, 1, 1, 3]],
    "apply_downsample": [False, True],
    "use_lightweight_conv_block": [False, True],
    "depths": [1, 1],
    "hidden_sizes": [16, 32],
    "embedding_size": 8,
    "use_learnable_affine_block": True,
    "hidden_act": "relu",
    "out_features": ["stage1", "stage2"],
}
_EFFICIENTNET = {
    "stackwise_kernel_sizes": [3, 5, 3],
    "stackwise_num_repeats": [1, 2, 2],
    "stackwise_input_filters": [16, 16, 24],
    "stackwise_output_filters": [16, 24, 32],
    "stackwise_expansion_ratios": [1, 4, 4],
    "stackwise_squeeze_and_excite_ratios": [0.0, 0.25, 0.25],
    "stackwise_strides": [1, 2, 2],
    "stackwise_block_types": ["fused", "unfused", "v1"],
    "stackwise_force_input_filters": [0] * 3,
    "stackwise_nores_option": [False] * 3,
    "stackwise_width_coefficients": [1.0] * 3,
    "stackwise_depth_coefficients": [1.0] * 3,
    "num_features": 48,
}
_MOBILENET = {
    "stackwise_expansion": [[20, 28], [32, 36]],
    "stackwise_num_blocks": [2, 2],
    "stackwise_num_filters": [[16, 16], [24, 24]],
    "stackwise_kernel_size": [[3, 3], [5, 5]],
    "stackwise_num_strides": [[2, 1], [2, 1]],
    "stackwise_se_ratio": [[None, None], [0.25, 0.25]],
    "stackwise_activation": [["relu", "relu"], ["hard_swish", "hard_swish"]],
    "stackwise_padding": [[1, 1], [2, 2]],
    "output_num_filters": 32,
    "depthwise_filters": 8,
    "depthwise_stride": 2,
    "depthwise_residual": False,
    "squeeze_and_excite": 0.5,
    "last_layer_filter": 36,
}
_MOBILENET_V5 = {
    "stackwise_block_types": [["er"], ["uir", "mqa"]],
    "stackwise_num_blocks": [1, 2],
    "stackwise_num_filters": [[24], [32, 32]],
    "stackwise_strides": [[2], [2, 1]],
    "stackwise_act_layers": [["relu"], ["gelu", "gelu"]],
    "stackwise_exp_ratios": [[4.0], [6.0, 1.0]],
    "stackwise_se_ratios": [[0.0], [0.0, 0.0]],
    "stackwise_dw_kernel_sizes": [[0], [5, 3]],
    "stackwise_dw_start_kernel_sizes": [[0], [0, 0]],
    "stackwise_dw_end_kernel_sizes": [[0], [0, 0]],
    "stackwise_exp_kernel_sizes": [[3], [0, 0]],
    "stackwise_pw_kernel_sizes": [[1], [0, 0]],
    "stackwise_num_heads": [[0], [0, 4]],
    "stackwise_key_dims": [[0], [0, 8]],
    "stackwise_value_dims": [[0], [0, 8]],
    "stackwise_kv_strides": [[0], [0, 1]],
    "stackwise_use_cpe": [[False], [False, False]],
    "num_features": 48,
    "image_shape": (32, 32, 3),
    "use_msfa": False,
}
_D_FINE = {
    "backbone": Part("HGNetV2Backbone", _HGNET),
    "decoder_in_channels": [16, 16],
    "encoder_hidden_dim": 16,
    "num_denoising": 10,
    "num_labels": 4,
    "hidden_dim": 16,
    "learn_initial_query": False,
    "num_queries": 10,
    "anchor_image_size": (32, 32),
    "feat_strides": [4, 8],
    "num_feature_levels": 2,
    "encoder_in_channels": [16, 32],
    "encode_proj_layers": [1],
    "num_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "num_encoder_layers": 1,
    "hidden_expansion": 0.5,
    "depth_multiplier": 0.5,
    "eval_idx": -1,
    "num_decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 32,
    "decoder_n_points": [2, 2],
    "lqe_hidden_dim": 16,
    "num_lqe_layers": 2,
    "out_features": ["stage1", "stage2"],
    "image_shape": (32, 32, 3),
    "seed": 0,
}
_DINO_V2 = {"image_shape": (42, 42, 3), "patch_size": 14, "position_embedding_shape": (70, 70, 3)}
_IMAGE_64 = {"image_shape": (64, 64, 3), "patch_size": 8, "position_embedding_shape": (64, 64, 3)}
_VIT_DET = {
    "image_shape": (32, 32, 3),
    "hidden_size": 16,
    "global_attention_layer_indices": [1],
    "patch_size": 8,
    "num_output_channels": 16,
    "window_size": 2,
}
_SAM3 = {"hidden_dim": 16, "intermediate_dim": 32, "num_heads": 2}
_T5_GEMMA = {
    f"{side}_{name}": size
    for side in ("encoder", "decoder")
    for name, size in {
        **{"hidden_dim": 32, "intermediate_dim": 48, "num_layers": 2, "num_attention_heads": 4},
        **{"num_key_value_heads": 2, "head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]},
    }.items()
}
_DELTA_NET = {
    "num_layers": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
_VAE = ([32] * 4, [1] * 4, [32] * 4, [1] * 4)
_VAE_NAMES = ("encoder_num_filters", "encoder_num_blocks", "decoder_num_filters", "decoder_num_blocks")
_PYRAMID = {"image_encoder": Part("ResNetBackbone", _RESNET)}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "BASNetBackbone": {
        "image_encoder": Part("ResNetBackbone", {**_DEEP_RESNET, "stackwise_num_filters": [64, 128, 256, 512]}),
        **{"num_classes": 1, "projection_filters": 64},
    },
    "BLIP2Backbone": {
        "vision_encoder": Part(
            f"{_SOURCE}.blip2.blip2_vision_encoder.BLIP2VisionEncoder",
            {
                **dict.fromkeys(("use_patch_bias", "use_class_token", "use_mha_bias", "use_mlp_bias"), True),
                **{"dropout_rate": 0.0, "layer_norm_epsilon": 1e-6, "initializer_range": 0.02},
            },
        ),
        "qformer": Part(
            f"{_SOURCE}.blip2.blip2_qformer.BLIP2QFormer",
            {
                **{"num_query_tokens": 2, "vision_dim": 32, "cross_attention_frequency": 1},
                **{"dropout": 0.0, "layer_norm_epsilon": 1e-6},
            },
        ),
        "language_model": Part(
            f"{_SOURCE}.blip2.blip2_custom_opt.BLIP2CustomOPT",
            {"num_query_tokens": 2, "qformer_hidden_dim": 32, "dropout": 0.0, "language_projection": None},
        ),
    },
    "CLIPBackbone": {
        "vision_encoder": Part("CLIPVisionEncoder", _TOWER),
        "text_encoder": Part("CLIPTextEncoder", {"embedding_dim": 32}),
    },
    "CLIPVisionEncoder": _TOWER,
    "CLIPTextEncoder": {"embedding_dim": 32},
    "CSPNetBackbone": {
        "stem_filters": 8,
        "stem_kernel_size": 3,
        "stem_strides": 1,
        "stackwise_strides": 2,
        "stackwise_depth": [1, 2],
        "stackwise_num_filters": [16, 24],
        "down_growth": True,
        "bottle_ratio": (0.5, 1.0),
        "block_ratio": (1.0, 0.5),
        "expand_ratio": (2.0, 1.0),
        "block_type": "dark_block",
        "stage_type": "csp",
        "stem_padding": "same",
    },
    "DFineBackbone": _D_FINE,
    "DINOV2Backbone": {**_DINO_V2, "num_register_tokens": 4, "use_swiglu_ffn": True},
    "DINOV3Backbone": _TOWER,
    "DeepLabV3Backbone": {
        **_PYRAMID,
        "low_level_feature_key": "P2",
        "spatial_pyramid_pooling_key": "P4",
        "dilation_rates": [2, 4],
        "upsampling_size": 4,
        "projection_filters": 8,
    },
    "DenseNetBackbone": {"stackwise_num_repeats": [2, 3], "growth_rate": 4},
    "DepthAnythingBackbone": {
        "image_encoder": Part("DINOV2Backbone", {**_DINO_V2, **_IMAGE_64, "num_layers": 4, "apply_layernorm": True}),
        "reassemble_factors": [4, 2, 1, 0.5],
        "neck_hidden_dims": [8, 8, 16, 16],
        "fusion_hidden_dim": 16,
        "head_hidden_dim": 8,
        "head_in_index": -1,
        "feature_keys": ["stage1", "stage2", "stage3", "stage4"],
    },
    "DepthAnythingDepthEstimator": {"depth_estimation_type": "metric", "max_depth": 10.0},
    "EfficientNetBackbone": _EFFICIENTNET,
    "FluxBackbone": {
        "input_channels": 16,
        "hidden_size": 32,
        "mlp_ratio": 2.0,
        "depth": 1,
        "depth_single_blocks": 2,
        "axes_dim": [2, 2, 4],
        "theta": 10_000,
        "use_bias": True,
        "guidance_embed": True,
        "image_shape": (12, 16),
        "text_shape": (7, 24),
        "image_ids_shape": (12, 3),
        "text_ids_shape": (7, 3),
        "y_shape": (20,),
    },
    "Gemma3Backbone": {
        "num_layers": 6,
        "use_sliding_window_attention": True,
        "use_post_ffw_norm": True,
        "use_post_attention_norm": True,
        "vision_encoder": Part(
            f"{_SOURCE}.gemma3.gemma3_vision_encoder.Gemma3VisionEncoder",
            {"patch_size": 4, "pool_size": 4, "output_dim": 32},
        ),
    },
    "Gemma3nBackbone": {
        "text_vocab_size": 50,
        "text_hidden_size": 32,
        "pad_token_id": 0,
        "intermediate_size": [48, 48],
        "hidden_activation": "gelu_approximate",
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_theta": 10000.0,
        "vocab_size_per_layer_input": 50,
        "hidden_size_per_layer_input": 8,
        "altup_num_inputs": 2,
        "laurel_rank": 4,
    },
    "Gemma4Backbone": {"num_layers": 6},
    "GemmaBackbone": {"attention_logit_soft_cap": 50, "final_logit_soft_cap": 30, "use_sliding_window_attention": True},
    "HGNetV2Backbone": _HGNET,
    "MetaCLIP2Backbone": {
        "vision_encoder": Part("MetaCLIP2VisionEncoder", _TOWER),
        "text_encoder": Part("MetaCLIP2TextEncoder", {"embedding_dim": 32}),
    },
    "MetaCLIP2VisionEncoder": _TOWER,
    "MetaCLIP2TextEncoder": {"embedding_dim": 32},
    "MiTBackbone": _MIT,
    "MobileNetBackbone": _MOBILENET,
    "MobileNetV5Backbone": _MOBILENET_V5,
    "MoonshineBackbone": {
        "filter_dim": 32,
        **{
            f"{side}_num_{what}": size
            for side in ("encoder", "decoder")
            for what, size in (("layers", 2), ("heads", 4))
        },
    },
    "PARSeqBackbone": {
        "image_encoder": Part("ViTBackbone", {"image_shape": (16, 32, 3), "use_class_token": False}),
        "max_label_length": 12,
        "decoder_hidden_dim": 32,
        "num_decoder_layers": 1,
        "num_decoder_heads": 4,
        "decoder_mlp_dim": 48,
    },
    "PaliGemmaBackbone": {"vit_patch_size": 8, "vit_num_heads": 4, "vit_hidden_dim": 32, "vit_num_layers": 2},
    "Qwen3_5Backbone": _DELTA_NET,
    "Qwen3_5MoeBackbone": _DELTA_NET,
    "RWKV7Backbone": {"gate_lora": 16, "mv_lora": 8, "aaa_lora": 8, "decay_lora": 8},
    "ResNetBackbone": _RESNET,
    "RetinaNetBackbone": {
        "image_encoder": Part("ResNetBackbone", _DEEP_RESNET),
        **{"min_level": 3, "max_level": 6, "use_p5": True},
    },
    "RetinaNetObjectDetector": {
        "label_encoder": None,
        "anchor_generator": Part(
            "keras_hub.src.layers.modeling.anchor_generator.AnchorGenerator",
            {
                **{"bounding_box_format": "yxyx", "min_level": 3, "max_level": 6, "num_scales": 3},
                **{"aspect_ratios": [0.5, 1.0, 2.0], "anchor_size": 4},
            },
        ),
    },
    "SAM3PromptableConceptBackbone": {
        "vision_encoder": Part(
            f"{_SOURCE}.sam3.sam3_vision_encoder.SAM3VisionEncoder",
            {
                **_SAM3,
                **{"image_shape": (28, 28, 3), "patch_size": 14, "fpn_hidden_dim": 16},
                **{"fpn_scale_factors": [4.0, 2.0, 1.0, 0.5], "pretrain_image_shape": (42, 42, 3)},
                **{"window_size": 2, "global_attn_indexes": [1, 2]},
            },
        ),
        "text_encoder": Part(f"{_SOURCE}.sam3.sam3_text_encoder.SAM3TextEncoder", _SAM3),
        "geometry_encoder": Part(f"{_SOURCE}.sam3.sam3_geometry_encoder.SAM3GeometryEncoder", {**_SAM3, "roi_size": 7}),
        "detr_encoder": Part(f"{_SOURCE}.sam3.sam3_detr_encoder.SAM3DetrEncoder", _SAM3),
        "detr_decoder": Part(
            f"{_SOURCE}.sam3.sam3_detr_decoder.SAM3DetrDecoder",
            {**_SAM3, "image_shape": (28, 28, 3), "patch_size": 14, "num_queries": 8},
        ),
        "mask_decoder": Part(
            f"{_SOURCE}.sam3.sam3_mask_decoder.SAM3MaskDecoder",
            {"num_upsampling_stages": 3, "hidden_dim": 16, "num_heads": 2},
        ),
    },
    "SAMBackbone": {
        "image_encoder": Part("ViTDetBackbone", _VIT_DET),
        "prompt_encoder": Part(
            f"{_SOURCE}.sam.sam_prompt_encoder.SAMPromptEncoder",
            {
                **{"hidden_size": 16, "image_embedding_size": (4, 4)},
                **{"input_image_size": (32, 32), "mask_in_channels": 16},
            },
        ),
        "mask_decoder": Part(
            f"{_SOURCE}.sam.sam_mask_decoder.SAMMaskDecoder",
            {
                **{"hidden_size": 16, "intermediate_dim": 32, "embedding_dim": 16, "num_multimask_outputs": 3},
                **{"iou_head_depth": 3, "iou_head_hidden_dim": 8},
            },
        ),
    },
    "SegFormerBackbone": {"image_encoder": Part("MiTBackbone", _MIT)},
    "SigLIPBackbone": {
        "vision_encoder": Part("SigLIPVisionEncoder", _TOWER),
        "text_encoder": Part("SigLIPTextEncoder", {"embedding_dim": 32}),
    },
    "SigLIPVisionEncoder": _TOWER,
    "SigLIPTextEncoder": {"embedding_dim": 32},
    "SmolLM3Backbone": {
        **{"attention_bias": False, "attention_dropout": 0.0, "mlp_bias": False, "layer_norm_epsilon": 1e-5},
        **{"rope_layer_enabled_list": [True, False], "layer_types": ["attention"] * 2},
        **{"rope_theta": 10000.0, "partial_rotary_factor": 1.0},
    },
    "StableDiffusion3Backbone": {
        **{"mmdit_patch_size": 2, "mmdit_hidden_dim": 32, "mmdit_num_layers": 2, "mmdit_num_heads": 4},
        **{"mmdit_position_size": 16, "mmdit_qk_norm": None, "mmdit_dual_attention_indices": None},
        "vae": Part(
            f"{_SOURCE}.vae.vae_backbone.VAEBackbone",
            {**dict(zip(_VAE_NAMES, _VAE, strict=True)), "sampler_method": "mode", "name": "vae"},
        ),
        "clip_l": Part("CLIPTextEncoder", {"embedding_dim": 32, "intermediate_output_index": -2, "name": "clip_l"}),
        "clip_g": Part("CLIPTextEncoder", {"embedding_dim": 32, "intermediate_output_index": -2, "name": "clip_g"}),
        "image_shape": (32, 32, 3),
    },
    "SwinTransformerBackbone": {"embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4), "window_size": 4},
    "T5Gemma2Backbone": {**_T5_GEMMA, "sliding_window": 4, "cross_attention_hidden_size": 32},
    "T5GemmaBackbone": {
        **_T5_GEMMA,
        **{"sliding_window": 4, "cross_attention_hidden_size": 32, "attn_logit_softcapping": 50.0},
    },
    "VGGBackbone": {
        "stackwise_num_repeats": [2, 2],
        "stackwise_num_filters": [8, 16],
        "image_shape": (16, 16, 3),
    },
    "VGGImageClassifier": {"pooling": "flatten", "pooling_hidden_dim": 32},
    "ViTDetBackbone": _VIT_DET,
    "VideoPrismBackbone": {"image_shape": (32, 32, 3), "vocabulary_size": 50, "num_text_layers": 1},
    "WhisperBackbone": {"num_mels": 16},
    "XceptionBackbone": {
        "stackwise_conv_filters": [[8, 16], [24, 24], [32, 32]],
        "stackwise_pooling": [False, True, False],
    },
}
# Of an input its shape without the batch, where it is no text of 7 tokens or image of 64 by 96, or its values.
INPUTS: dict[str, dict[str, Any]] = {
    "Gemma3Backbone": {  # Two images of four tokens each are all of the text.
        **{"images": (2, 32, 32, 3), "vision_indices": [list(range(8))] * 2},
        **dict.fromkeys(("token_ids", "padding_mask", "vision_mask"), (8,)),
    },
    "MoonshineBackbone": {"encoder_input_values": (1600, 1), "encoder_padding_mask": (1600,)},
    "PARSeqBackbone": {"token_ids": (12,), "padding_mask": (12,)},
    "SAM3PromptableConceptBackbone": {  # A box names the image that it is in.
        "boxes": [[[0, 0.4, 0.5, 0.2, 0.3]], [[1, 0.5, 0.6, 0.4, 0.2]]],
        "box_labels": (1,),
    },
    "SAMBackbone": {"points": (1, 2), "labels": (1,), "boxes": (1, 2, 2), "masks": (1, 16, 16, 1)},
    **dict.fromkeys(("SigLIPBackbone", "SigLIPTextEncoder"), {"token_ids": (32,)}),
    "WhisperBackbone": {"encoder_features": (20, 16)},
}
INPUTS["SAMImageSegmenter"] = INPUTS["SAMBackbone"]
INPUTS["SAM3PromptableConceptImageSegmenter"] = INPUTS["SAM3PromptableConceptBackbone"]
# Exported with these inputs as probes: not all sizes fit each other.
FITTING = INPUTS.keys() - {"WhisperBackbone"}
# Axes of a size of their own.
AXES = dict.fromkeys(
    ("SAM3PromptableConceptBackbone", "SAM3PromptableConceptImageSegmenter"),
    dict.fromkeys(("boxes", "box_labels"), {1: "boxes"}),
)
# Of inputs of one length only: their layers count in Python over the positions, or transform them (Fourier).
LENGTH = dict.fromkeys(
    ("FNetBackbone", "FNetTextClassifier", "Qwen3_5Backbone", "Qwen3_5MoeBackbone", "RWKV7Backbone"), 16
)
