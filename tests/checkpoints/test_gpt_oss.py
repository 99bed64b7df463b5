"""gpt-oss: experts in MXFP4, configs that are refused, and the published sizes."""

import json
import pathlib
import re
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.checkpoints import (
    Config,
    ConfigError,
    CorruptFileError,
    TensorTypeError,
    from_huggingface,
    to_huggingface,
)
from keras_transformer.checkpoints.families.text.mixtures_of_experts.gpt_oss import GptOss
from keras_transformer.checkpoints.files.folder import Folder
from keras_transformer.checkpoints.files.mxfp4 import NotMXFP4Error, decode, encode

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"
PACKED, PLAIN = DATA / "gpt_oss_mxfp4-CausalLM", DATA / "gpt_oss-CausalLM"
MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
BLOCKS = "model.layers.1.mlp.experts.down_proj_blocks"


def random_blocks(seed=0):
    """Blocks with few different codes, so that many have several scales, and blocks of zeros with a scale."""
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, generator.integers(1, 9, (40, 3, 1)), (40, 3, 32))
    codes = codes + 8 * generator.integers(0, 2, codes.shape)
    return (codes[..., ::2] + 16 * codes[..., 1::2]).astype("uint8"), generator.integers(1, 253, (40, 3)).astype(
        "uint8"
    )


def test_every_value_with_every_scale_is_exact():
    """Up to scale 252; beyond it, and not before, bfloat16 has no room for the largest."""
    blocks = np.arange(256, dtype="uint8").reshape(1, 16, 16)
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(1, 512)
    values = np.where(codes < 8, 1, -1) * MAGNITUDES[codes % 8]
    for scale in range(255):
        found = decode(blocks, np.full((1, 16), scale, "uint8"))
        assert found.dtype == ml_dtypes.bfloat16
        assert np.all(np.isfinite(found)) == (scale <= 252)
        if scale <= 252:
            np.testing.assert_array_equal(found.astype("float64"), values * 2.0 ** (scale - 127))
            np.testing.assert_array_equal(np.signbit(found), codes >= 8)
    assert np.all(np.isnan(decode(blocks, np.full((1, 16), 255, "uint8"))))


def test_blocks_come_back_with_their_scales_and_values_without():
    blocks, scales = random_blocks()
    values = decode(blocks, scales)
    for dtype in (ml_dtypes.bfloat16, "float32"):
        again, same = encode(values.astype(dtype), scales)
        np.testing.assert_array_equal(again, blocks)
        np.testing.assert_array_equal(same, scales)
        again, others = encode(values.astype(dtype))
        assert np.any(others != scales)
        np.testing.assert_array_equal(decode(again, others).view("uint16"), values.view("uint16"))
    # Values for which the given scales are wrong get others.
    again, others = encode(2 * values, scales)
    np.testing.assert_array_equal(decode(again, others), 2 * values)


@pytest.mark.parametrize("value", [1.25, 5.0, 7.0, 0.25 + 2**-8, np.nan, np.inf])
def test_other_values_are_not_rounded(value):
    matrix = np.full((2, 64), 6.0)
    matrix[1, 40] = value
    for scales in (None, np.full((2, 2), 127, "uint8")):
        with pytest.raises(NotMXFP4Error):
            encode(matrix, scales)


@pytest.fixture(scope="module")
def model():
    return from_huggingface(PACKED, verbose=0)


def test_trained_experts_are_written_in_bfloat16(tmp_path):
    model = from_huggingface(PACKED, verbose=0)
    kernel = model.get_layer("decoder_block_1").feedforward.gate_kernel
    kernel.assign(kernel + 0.01)
    with pytest.warns(UserWarning, match="layers.1.mlp.experts.gate_up_proj' has values .* bfloat16"):
        to_huggingface(model, tmp_path / "trained", verbose=0)
    assert "quantization_config" not in json.loads((tmp_path / "trained" / "config.json").read_text())
    tensors, before = load_file(tmp_path / "trained" / "model.safetensors"), load_file(PACKED / "model.safetensors")
    assert {name for name in tensors if name not in before} == {
        f"model.layers.{index}.mlp.experts.{part}" for index in range(2) for part in ("gate_up_proj", "down_proj")
    }
    assert {tensor.dtype.name for tensor in tensors.values()} == {"bfloat16"}
    again = from_huggingface(tmp_path / "trained", verbose=0)
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        wanted = np.asarray(theirs).astype(ml_dtypes.bfloat16) if theirs is kernel else np.asarray(theirs)
        np.testing.assert_array_equal(np.asarray(ours), wanted.astype("float32"))


def test_another_model_is_written_with_the_smallest_scales(model, tmp_path):
    to_huggingface(model, tmp_path / "like", like=PACKED, verbose=0)
    tensors, before = load_file(tmp_path / "like" / "model.safetensors"), load_file(PACKED / "model.safetensors")
    assert sorted(tensors) == sorted(before)
    np.testing.assert_array_equal(tensors[BLOCKS].shape, before[BLOCKS].shape)
    again = from_huggingface(tmp_path / "like", verbose=0)
    for ours, theirs in zip(again.weights, model.weights, strict=True):  # MXFP4 with other scales: the same values.
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs), err_msg=ours.path)


def test_16_bits_lose_nothing_of_the_experts(model):
    half = from_huggingface(PACKED, dtype="bfloat16", verbose=0)
    for ours, theirs in zip(half.weights, model.weights, strict=True):
        if "_kernel" in ours.path:
            assert ours.dtype == "bfloat16"
            np.testing.assert_array_equal(np.asarray(ours).astype("float32"), theirs)


def copy_of(source, tmp_path, **settings):
    folder = pathlib.Path(shutil.copytree(source, tmp_path / "copy"))
    config = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("scale, change", [(255, None), (253, None), (127, "int32")])
def test_blocks_that_are_not_mxfp4_are_refused(scale, change, tmp_path):
    folder = copy_of(PACKED, tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors[BLOCKS][0, 5, 0, 0] = 7
    scales = tensors[BLOCKS.replace("blocks", "scales")]
    scales[0, 5, 0] = scale
    if change:
        tensors[BLOCKS.replace("blocks", "scales")] = scales.astype(change)
    save_file(tensors, folder / "model.safetensors")
    error = TensorTypeError if change else CorruptFileError
    with pytest.raises(error, match=re.escape("layers.1.mlp.experts.down_proj")):
        from_huggingface(folder, verbose=0)


@pytest.mark.parametrize(
    "source, settings, message",
    [
        (
            PACKED,
            {"quantization_config": {"quant_method": "fp8"}},
            "'quant_method' is \"fp8\"; it must be one of 'mxfp4'",
        ),
        (PACKED, {"quantization_config": {}}, "no 'quant_method'"),
        (PACKED, {"intermediate_size": 48}, "'intermediate_size' is 48; only \"a multiple of 32\" is supported"),
        (PLAIN, {"sliding_window": None}, "no 'sliding_window'"),
        (PLAIN, {"layer_types": ["full_attention", "linear_attention"]}, "'layer_types' is"),
        (PLAIN, {"num_experts_per_tok": 5}, "'num_experts_per_tok' is 5; it must be an integer from 2 to 4"),
        (PLAIN, {"swiglu_limit": 0.0}, "limit must be above 0"),
        (PLAIN, {"swiglu_alpha": "steep"}, "'swiglu_alpha' is \"steep\"; it must be a number"),
        (PLAIN, {"rope_parameters": {"rope_type": "spiral"}}, "'rope_type' is \"spiral\""),
    ],
)
def test_configs_are_refused_before_tensors_are_read(source, settings, message, tmp_path, monkeypatch):
    monkeypatch.setattr(Folder, "read", lambda *_: pytest.fail("a tensor was read"))
    with pytest.raises(ConfigError, match=re.escape(message)):
        from_huggingface(copy_of(source, tmp_path, **settings), verbose=0)


# As OpenAI's config.json has them.
PUBLISHED = {
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "head_dim": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "sliding_window": 128,
    "num_experts_per_tok": 4,
    "max_position_embeddings": 131072,
    "rope_theta": 150000,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "original_max_position_embeddings": 4096,
        "truncate": False,
    },
    "quantization_config": {"quant_method": "mxfp4"},
}


@pytest.mark.parametrize(
    "layers, experts, parameters", [(24, 32, 20_914_757_184), (36, 128, 116_829_156_672)], ids=["20b", "120b"]
)
def test_published_sizes(layers, experts, parameters):
    """Two layers are built, without memory; the others have the same number of weights."""
    config = Config(PUBLISHED | {"num_hidden_layers": 2, "num_local_experts": experts})
    architecture = GptOss()
    with unallocated():
        backbone = architecture.backbone(config)
        model = architecture.heads["CausalLM"].build(backbone, config)
    sizes = {weight.path: int(np.prod(weight.shape)) for weight in model.weights if weight.dtype == "float32"}
    block = sum(size for path, size in sizes.items() if path.startswith("decoder_block_1/"))
    assert sum(sizes.values()) + (layers - 2) * block == parameters


def test_the_rotary_position_of_a_config_without_one_is_transformers_default():
    values = {name: value for name, value in PUBLISHED.items() if "rope" not in name}
    small = {
        "hidden_size": 64,
        "vocab_size": 9,
        "num_hidden_layers": 1,
        "num_local_experts": 4,
        "intermediate_size": 32,
    }
    models = [GptOss().backbone(Config(each | small)) for each in (values, PUBLISHED)]
    positions = [each.get_layer("decoder_block_0").mixer.position for each in models]
    assert positions[0].get_config() == positions[1].get_config() | {"name": positions[0].name}
    assert positions[0].scaling.magnitude == pytest.approx(0.1 * np.log(32) + 1)
