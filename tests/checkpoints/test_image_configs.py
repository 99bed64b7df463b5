"""Settings of models of images that are wrong, hostile, or of a variant that is not built."""

import json
import pathlib
import shutil

import pytest

from keras_transformer import checkpoints
from keras_transformer.vision import ImageProcessor

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"


@pytest.mark.parametrize(
    "source, changes",
    [
        ("vit-Model", {"image_size": [8, 12, 4]}),
        ("vit-Model", {"image_size": [9, 12]}),
        ("vit-Model", {"patch_size": 0}),
        ("vit-Model", {"pooler_act": "magic"}),
        ("dinov2-Model", {"qkv_bias": False}),
        ("dinov3_convnext-Model", {"depths": [1, 10**9]}),
        ("dinov3_vit-Model", {"num_attention_heads": 4}),
        ("dinov3_vit-Model", {"num_register_tokens": -1}),
        ("dinov3_vit-Model", {"pos_embed_jitter": "much"}),
        ("dinov3_vit-Model", {"value_bias": "yes"}),
        ("swin-Model", {"depths": [2, 10**9]}),
        ("swin-Model", {"depths": [1] * 10**4}),
        ("swin-Model", {"depths": "deep"}),
        ("swin-Model", {"use_absolute_embeddings": True}),
        ("detr-Model", {"auxiliary_loss": True}),
        ("detr-Model", {"position_embedding_type": "learned"}),
        ("detr-Model", {"d_model": 10}),
        ("detr-Model", {"encoder_layers": 10**9}),
        ("detr-Model", {"backbone_config": 3}),
        ("detr-Model", {"backbone_config": {"model_type": "convnext"}}),
        ("rt_detr-ObjectDetection", {"normalize_before": True}),
        ("rt_detr-ObjectDetection", {"learn_initial_query": True}),
        ("rt_detr-ObjectDetection", {"eval_size": [64, 32]}),
        ("rt_detr-ObjectDetection", {"anchor_image_size": [64, 32]}),
        ("rt_detr-ObjectDetection", {"num_feature_levels": 4}),
        ("rt_detr-ObjectDetection", {"decoder_in_channels": [8, 8, 12]}),
        ("rt_detr-ObjectDetection", {"decoder_attention_heads": 5}),
        ("rt_detr-ObjectDetection", {"encoder_attention_heads": 3}),
        ("rt_detr-ObjectDetection", {"encode_proj_layers": [3]}),
        ("rt_detr-ObjectDetection", {"decoder_layers": 10**9}),
        ("rt_detr-ObjectDetection", {"architectures": ["RTDetrModel"]}),
        ("rt_detr-ObjectDetection", {"backbone_config": {"model_type": "resnet"}}),
        ("d_fine-ObjectDetection", {"eval_idx": 1}),
        ("d_fine-ObjectDetection", {"depth_mult": 0.0}),
        ("d_fine-ObjectDetection", {"max_num_bins": 5}),
        ("d_fine-ObjectDetection", {"decoder_n_points": [1, 2]}),
        ("d_fine-ObjectDetection", {"architectures": ["DFineModel"]}),
        ("d_fine-ObjectDetection", {"backbone_config": {"model_type": "resnet"}}),
        ("rt_detr_v2-ObjectDetection", {"decoder_n_levels": 4}),
        ("rt_detr_v2-ObjectDetection", {"decoder_method": "cubic"}),
        ("segformer-Model", {"depths": [1, 2]}),
        ("segformer-Model", {"depths": [1, 2, 10**9]}),
        ("segformer-Model", {"strides": [3, 2, 0]}),
        ("segformer-Model", {"num_encoder_blocks": 2}),
        ("sam-Model", {"vision_config": 3}),
        ("sam-Model", {"vision_config": {"num_hidden_layers": 10**9}}),
        ("sam-Model", {"mask_decoder_config": {"num_multimask_outputs": 10**9}}),
        ("sam-Model", {"prompt_encoder_config": {"image_size": 24, "hidden_size": 24}}),
        ("sam-Model", {"prompt_encoder_config": {"num_point_embeddings": 5, "hidden_size": 24}}),
        ("sam-Model", {"vision_config": {"global_attn_indexes": "all"}}),
        ("yolos-Model", {"num_detection_tokens": 0}),
        ("yolos-Model", {"image_size": [3, 11]}),
        ("clip-Model", {"text_config": {"num_hidden_layers": 10**8}}),
        ("clip-Model", {"vision_config": 3}),
    ],
)
def test_a_setting_is_refused_by_name(source, changes, tmp_path):
    folder = pathlib.Path(shutil.copytree(DATA / source, tmp_path / "checkpoint"))
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(checkpoints.ConfigError) as raised:
        checkpoints.from_huggingface(folder, verbose=0)
    name, value = next(iter(changes.items()))
    assert (next(iter(value)) if isinstance(value, dict) else name) in str(raised.value)


def test_the_processor_of_the_folder_is_the_model_s(tmp_path):
    folder = pathlib.Path(shutil.copytree(DATA / "vit-Model", tmp_path / "checkpoint"))
    shutil.copy(DATA.parent / "processors" / "vit" / "preprocessor_config.json", folder)
    model = checkpoints.from_huggingface(folder, verbose=0)
    assert isinstance(model.processor, ImageProcessor)
    assert not hasattr(checkpoints.from_huggingface(DATA / "vit-Model", verbose=0), "processor")
