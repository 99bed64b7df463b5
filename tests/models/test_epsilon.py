"""The epsilon of a model reaches every norm in it."""

import inspect

import pytest
from variants import exhaustive_but

from keras_transformer import models
from keras_transformer.backend.keras_private import flatten_layers
from keras_transformer.models import (
    ConvNeXtSize,
    DETRSize,
    DFINESize,
    EvolvedSize,
    HybridEncoderSize,
    Qwen2_5VLVision,
    RTDETRSize,
    SAMSize,
    SegFormer,
    SegFormerSize,
    Size,
    SwinSize,
    ViT,
)

EPSILON = 3e-3
SIZE = Size(2, 16, 2, 32)
SEGFORMER = SegFormerSize((8, 16), (1, 2), (2, 2), (3, 3), (2, 2), (2, 1), (2, 2))
MAPS = SegFormerSize((8, 16, 8), (1, 1, 1), (2, 2, 2), (3, 3, 3), (2, 2, 2), (2, 1, 1), (2, 2, 2))
VISION = {"vision": lambda: ViT(SIZE, patch_size=4, image_size=8, layer_norm_epsilon=EPSILON)}
# The arguments that a small model needs beside its size, vocabulary and epsilon.
DETECTOR = {
    "backbone": lambda: SegFormer(MAPS, layer_norm_epsilon=EPSILON),
    "batch_norm_epsilon": EPSILON,
}
ARGUMENTS = {
    "rt_detr": {"size": RTDETRSize(16, 1, 2, 24, HybridEncoderSize(8, 1, 2, 16, depth=1)), **DETECTOR},
    "d_fine": {"size": DFINESize(16, 1, 2, 24, HybridEncoderSize(8, 1, 2, 16, depth=1)), **DETECTOR},
    "flux": {"num_single_layers": 1, "rotary_features": (4, 4), "image_size": 8},
    "swin": {"size": SwinSize(8, (2, 1), (2, 4)), "patch_size": 2, "image_size": 12, "window_size": 3},
    "detr": {
        "size": DETRSize(16, (1, 2), (2, 2), (24, 24)),
        "backbone": lambda: SegFormer(SEGFORMER, layer_norm_epsilon=EPSILON),
    },
    "segformer": {"size": SEGFORMER, "image_size": 32},
    "sam": {"size": SAMSize(2, 16, 2, 32, (1,)), "patch_size": 4, "image_size": 16, "window_size": 3},
    "convnext": {"size": ConvNeXtSize((8, 16), (1, 2)), "image_size": 32},
    "crate": {"size": Size(2, 16, 2, 16)},
    "evolved_transformer": {
        "size": EvolvedSize(num_encoder_layers=2, num_decoder_layers=2, hidden_dim=32, num_heads=2)
    },
    "kosmos": {"begin_image_id": 1, **VISION},
    "kosmos2": {"begin_image_id": 1, **VISION},
    "paligemma": VISION,
    "qwen2_5_vl": {"vision": lambda: Qwen2_5VLVision(SIZE, 16, patch_dim=4, full_attention_blocks=())},
}
# Norms whose epsilon is fixed, as the model's documentation says: what their paths begin with.
PROJECTIONS = tuple(f"feature_projection_{level}_norm" for level in range(3))
RESIDUALS = ("mixer_residual", "feedforward_residual")
QWEN_TOWER = ("merger_norm", *(f"image_encoder_block_{index}/{each}/norm" for index in (0, 1) for each in RESIDUALS))
FIXED = {
    "rt_detr": PROJECTIONS,
    "d_fine": (*PROJECTIONS, "decoder_block_0/cross_attention_residual/norm"),
    "swin": ("embedding_norm", "patch_merging_1", "patch_merging_1/norm"),
    "sam": ("neck_projection_norm", "features"),
    **dict.fromkeys(("hubert", "wav2vec2", "wavlm"), ("feature_encoder/norm_0",)),
    "qwen2_5_vl": QWEN_TOWER,
    "vits": ("duration_predictor/",),
}


def epsilon_argument(function):
    names = [name for name in inspect.signature(function).parameters if name.endswith("epsilon")]
    return names[0] if names else None


TAKE_EPSILON = [name for name, function in models.MODELS.items() if epsilon_argument(function)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", exhaustive_but(TAKE_EPSILON, "bert", "llama", "t5", "vit", "rwkv", "qwen2_5_vl", "d_fine", "vits")
)
def test_epsilon_reaches_every_norm(name):
    function = models.MODELS[name]
    parameters = inspect.signature(function).parameters
    arguments = {each: 30 for each in parameters if each.endswith("vocabulary_size")}
    arguments |= {"size": SIZE, **ARGUMENTS.get(name, {}), epsilon_argument(function): EPSILON}
    arguments = {each: value() if callable(value) else value for each, value in arguments.items() if each in parameters}
    layers = flatten_layers(function(**arguments))
    norms = [
        layer for layer in layers if hasattr(layer, "epsilon") and not str(layer.path).startswith(FIXED.get(name, ()))
    ]
    assert len(norms) > 2
    assert {layer.path: layer.epsilon for layer in norms} == {layer.path: EPSILON for layer in norms}


def test_the_models_that_take_epsilon():
    assert {"bert", "rwkv", "llama", "gemma3", "vit", "t5", "xlnet"} <= set(TAKE_EPSILON)
