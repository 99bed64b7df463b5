"""DiT: parity with diffusers, and published sizes."""

import json
from pathlib import Path

import numpy as np
import pytest

from keras_transformer import models
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.models.diffusion import dit

REFERENCE = np.load(Path(__file__).parents[1] / "data" / "dit.npz")
# Of diffusers, with the embedding of the condition once; those of DiT's code have twice the outputs, for variances.
PARAMETERS = {"S": 32_858_896, "B": 130_303_504, "L": 457_824_272, "XL": 674_816_272}
_CONDITION = "transformer_blocks.0.norm1.emb."
NAMES = {
    "timestep_embedding/hidden": f"{_CONDITION}timestep_embedder.linear_1",
    "timestep_embedding/output": f"{_CONDITION}timestep_embedder.linear_2",
    "final_modulation/projection": "proj_out_1",
    "patches": "proj_out_2",
    "self_attention/query": "attn1.to_q",
    "self_attention/key": "attn1.to_k",
    "self_attention/value": "attn1.to_v",
    "self_attention/attention_output": "attn1.to_out.0",
    "feedforward/hidden": "ff.net.0.proj",
    "feedforward/output": "ff.net.2",
}
# Rows of the one projection of a block, in its order: shift, scale and gate of attention, then of the feed-forward.
ROWS = {
    "mixer_residual/modulation/projection": slice(0, 32),
    "mixer_residual/gate": slice(32, 48),
    "feedforward_residual/modulation/projection": slice(48, 80),
    "feedforward_residual/gate": slice(80, 96),
}


def of_torch(path):
    """The weight of diffusers for a path of ours."""
    if path == "label_embedding/table/embeddings":
        return REFERENCE[f"weights/{_CONDITION}class_embedder.embedding_table.weight"]
    name, kind = path.rsplit("/", 1)
    kind = {"kernel": "weight", "bias": "bias"}[kind]
    if name == "patch_embedding/projection":
        value = REFERENCE[f"weights/pos_embed.proj.{kind}"]
        return value.transpose(2, 3, 1, 0) if kind == "weight" else value
    if not name.startswith("encoder_block_"):
        return REFERENCE[f"weights/{NAMES[name]}.{kind}"].T
    block, part = name.split("/", 1)
    prefix = f"weights/transformer_blocks.{block[-1]}."
    if part in ROWS:
        return REFERENCE[f"{prefix}norm1.linear.{kind}"][ROWS[part]].T
    return REFERENCE[f"{prefix}{NAMES[part]}.{kind}"].T


def test_outputs_are_those_of_diffusers():
    assert json.loads(str(REFERENCE["config"]))["class"] == "DiTTransformer2DModel"
    model = models.DiT(models.Size(2, 16, 2, 64), 2, 6, num_channels=3, num_classes=5)
    for weight in model.trainable_weights:
        weight.assign(of_torch(weight.path).reshape(weight.shape))
    inputs = {name: REFERENCE[name] for name in ("images", "times", "labels")}
    expected = REFERENCE["output"]
    found = model.predict(inputs, verbose=0)
    # Angles up to 999 are rounded to 6e-5.
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("size", ["S", "XL"])
def test_published_sizes(size):
    assert set(PARAMETERS) == set(dit.SIZES)
    with unallocated():
        assert models.DiT(size).count_params() == PARAMETERS[size]


def test_prediction_is_zero_at_first_and_float32():
    model = models.DiT(models.Size(1, 16, 2, 24), (2, 4), (4, 8), num_channels=3, num_classes=None)
    images = np.random.default_rng(0).normal(size=(2, 4, 8, 3))
    np.testing.assert_array_equal(model.predict({"images": images, "times": np.array([0.1, 1.0])}, verbose=0), 0)
    assert [layer.name for layer in model.layers if "label" in layer.name] == []
