"""CRATE: the reference's figures, part by part and whole, and published sizes."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.attention import MultiHeadAttention, attention_maps
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.blocks import EncoderBlock
from keras_transformer.feedforward import ISTA
from keras_transformer.models.vision import crate

DATA = Path(__file__).parents[1] / "data"
SIZE = models.Size(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=16)

# Table 1 of the paper, in millions, with 1,000 classes.
PARAMETERS = {"Ti": 6.09, "S": 13.12, "B": 22.80, "L": 77.64}


@pytest.mark.parametrize("size", crate.SIZES)
def test_published_parameters(size):
    with unallocated():
        model = tasks.ImageClassifier(models.CRATE(size), 1000)
    assert round(model.count_params() / 1e6, 2) == PARAMETERS[size]


def fill(block, golden, prefix):
    """The weights of a layer of the reference, whose kernels are `(out, in)`."""
    block.mixer_residual.norms["norm"].set_weights([golden[f"{prefix}.0.norm.{part}"] for part in ("weight", "bias")])
    block.mixer.set_weights(
        [
            golden[f"{prefix}.0.fn.qkv.weight"].T.reshape(16, 2, 8),
            golden[f"{prefix}.0.fn.to_out.0.weight"].T.reshape(2, 8, 16),
            golden[f"{prefix}.0.fn.to_out.0.bias"],
        ]
    )
    norm = block.feedforward_residual.norms["norm"]
    norm.set_weights([golden[f"{prefix}.1.norm.{part}"] for part in ("weight", "bias")])
    block.feedforward.set_weights([golden[f"{prefix}.1.fn.weight"]])


def test_reference_block():
    golden = np.load(DATA / "crate_block.npz")
    x = golden["inputs/x"]
    mixer = MultiHeadAttention(2, 8, mechanism="subspace", use_bias=False, use_output_bias=True)
    norm = keras.layers.LayerNormalization(epsilon=1e-5)
    block = EncoderBlock(mixer, ISTA(), residual="none", mixer_residual="pre", norm=norm)
    block.build(x.shape)
    fill(block, golden, "params/layers.0")
    np.testing.assert_allclose(block(x), golden["outputs/y"], atol=1e-6)
    np.testing.assert_allclose(block.mixer(x, x), golden["outputs/mssa_raw"], atol=1e-6)
    np.testing.assert_allclose(block.feedforward(x), golden["outputs/ista_raw"], atol=1e-6)
    alone = x + np.asarray(block.mixer(block.mixer_residual.pre(x), x))
    np.testing.assert_allclose(alone, golden["outputs/after_attention"], atol=1e-6)


def reference_model():
    golden = np.load(DATA / "crate_model.npz")
    params = {name.removeprefix("params/"): golden[name] for name in golden.files if name.startswith("params/")}
    backbone = models.CRATE(SIZE, patch_size=4, image_size=16)
    model = tasks.ImageClassifier(backbone, 5, activation=None)
    embedding = backbone.get_layer("patch_embedding")
    embedding._pixel_norm.set_weights([params[f"to_patch_embedding.1.{part}"] for part in ("weight", "bias")])
    kernel = params["to_patch_embedding.2.weight"].T.reshape(4, 4, 3, 16)
    embedding._projection.set_weights([kernel, params["to_patch_embedding.2.bias"]])
    embedding._token_norm.set_weights([params[f"to_patch_embedding.3.{part}"] for part in ("weight", "bias")])
    embedding.class_embedding.assign(params["cls_token"])
    embedding.position_embeddings.assign(params["pos_embedding"][0])
    for index in range(2):
        fill(backbone.get_layer(f"encoder_block_{index}"), params, f"transformer.layers.{index}")
    backbone.get_layer("final_norm").set_weights([params[f"mlp_head.0.{part}"] for part in ("weight", "bias")])
    model.get_layer("logits").set_weights([params["mlp_head.1.weight"].T, params["mlp_head.1.bias"]])
    return golden, backbone, model


def test_reference_model():
    golden, backbone, model = reference_model()
    images = golden["inputs/image"].transpose(0, 2, 3, 1)
    tokens = keras.Model(backbone.input, backbone.get_layer("patch_embedding").output)
    features = keras.Model(backbone.input, backbone.get_layer("encoder_block_1").output)
    np.testing.assert_allclose(tokens(images), golden["outputs/tokens"], atol=1e-5)
    np.testing.assert_allclose(features(images), golden["outputs/features"], atol=1e-5)
    np.testing.assert_allclose(model(images), golden["outputs/logits"], atol=1e-5)


def test_attention_maps_of_heads():
    golden, backbone, _ = reference_model()
    images = golden["inputs/image"].transpose(0, 2, 3, 1)
    scores = attention_maps(backbone, layers=[0])(images)["encoder_block_0/self_attention"]
    block = backbone.get_layer("encoder_block_0")
    tokens = np.asarray(block.mixer_residual.pre(golden["outputs/tokens"]), "float64")
    z = np.einsum("btd,dnh->bnth", tokens, np.asarray(block.mixer.query_dense.kernel))
    weights = np.exp(np.einsum("bnth,bnsh->bnts", z, z) / np.sqrt(8))
    np.testing.assert_allclose(scores, weights / weights.sum(-1, keepdims=True), atol=1e-5)


def test_a_dictionary_of_another_width_is_refused():
    with pytest.raises(ValueError, match="as wide as the tokens"):
        models.CRATE(models.Size(1, 16, 2, 32), 4, 16)
