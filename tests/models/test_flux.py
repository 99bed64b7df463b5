"""Flux: parity with diffusers; its blocks and positions."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
from diffusers_names import BLOCK, KINDS, NAMES, of_joint_block, swapped

from keras_transformer import diffusion, models
from keras_transformer.attention import JointAttention, MultiHeadAttention
from keras_transformer.blocks import SingleStreamBlock
from keras_transformer.feedforward import DenseFeedForward
from keras_transformer.positions import ALiBi, GridRotary

REFERENCE = np.load(Path(__file__).parents[1] / "data" / "flux.npz")
WIDTH = 20
GUIDANCE = {
    "guidance_embedding/hidden": "time_text_embed.guidance_embedder.linear_1",
    "guidance_embedding/output": "time_text_embed.guidance_embedder.linear_2",
}
# Rows of the one projection of a block of a single stream: shift, scale and gate.
ROWS = {"residual/modulation/projection": slice(0, 2 * WIDTH), "residual/gate": slice(2 * WIDTH, 3 * WIDTH)}


def of_torch(path):
    """The weight of diffusers for a path of ours."""
    name, kind = path.rsplit("/", 1)
    kind = KINDS[kind]
    if name == "patch_embedding/projection":
        value = REFERENCE[f"weights/x_embedder.{kind}"]
        # A patch is ordered by channel, row and column there.
        return value.reshape(WIDTH, 3, 2, 2).transpose(2, 3, 1, 0) if kind == "weight" else value
    if name == "patches":
        value = REFERENCE[f"weights/proj_out.{kind}"]
        return np.moveaxis(value.reshape(3, 2, 2, -1), 0, 2).reshape(12, -1).T
    if name == "final_modulation/projection":
        return swapped(REFERENCE[f"weights/norm_out.linear.{kind}"]).T
    if name.startswith("joint_block_"):
        return of_joint_block(REFERENCE, *name.split("/", 1), kind, WIDTH)
    if name.startswith("single_stream_block_"):
        return of_single_stream_block(*name.split("/", 1), kind)
    return REFERENCE[f"weights/{(NAMES | GUIDANCE)[name]}.{kind}"].T


def of_single_stream_block(block, part, kind):
    prefix = f"weights/single_transformer_blocks.{block[-1]}."
    if part in ROWS:
        return REFERENCE[f"{prefix}norm.linear.{kind}"][ROWS[part]].T
    if part == "feedforward/hidden":
        return REFERENCE[f"{prefix}proj_mlp.{kind}"].T
    if part == "attention/attention_output":
        return REFERENCE[f"{prefix}proj_out.weight"][:, :WIDTH].T
    if part == "feedforward/output":
        value = REFERENCE[f"{prefix}proj_out.{kind}"]
        return value[:, WIDTH:].T if kind == "weight" else value
    return REFERENCE[f"{prefix}{BLOCK[part]}.{kind}"].T


def small(guidance_embedding=True):
    return models.Flux(
        models.Size(2, WIDTH, 2, 4 * WIDTH),
        2,
        (4, 8),
        num_single_layers=2,
        num_channels=3,
        text_dim=5,
        pooled_text_dim=7,
        rotary_features=(2, 4),
        guidance_embedding=guidance_embedding,
    )


def test_outputs_are_those_of_diffusers():
    assert json.loads(str(REFERENCE["config"]))["class"] == "FluxTransformer2DModel"
    model = small()
    for weight in model.trainable_weights:
        weight.assign(of_torch(weight.path).reshape(weight.shape))
    assert model.count_params() == sum(REFERENCE[name].size for name in REFERENCE.files if name.startswith("weights/"))
    inputs = {name: REFERENCE[name] for name in ("images", "times", "text", "pooled_text", "guidance")}
    expected = REFERENCE["output"]
    found = model.predict(inputs, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6 * np.abs(expected).max())


@pytest.mark.exhaustive
def test_it_draws_and_trains():
    model, random = small(guidance_embedding=False), np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(random.normal(0.0, 0.3, weight.shape))
    before = [weight.numpy() for weight in model.trainable_weights]
    generator = diffusion.ImageGenerator(model, num_steps=3, guidance_scale=3.0)
    inputs = {
        name: random.normal(size=(2, *(4 if size is None else size for size in tensor.shape[1:]))).astype("float32")
        for name, tensor in generator.input.items()
    }
    drawn = generator.predict(inputs, verbose=0)
    for name in ("text", "negative_pooled_text"):
        assert np.abs(generator.predict({**inputs, name: -inputs[name]}, verbose=0) - drawn).max() > 1e-3
    trainer = diffusion.DenoisingTrainer(model)
    trainer.compile("adam")
    data = {"images": inputs["noise"], "text": inputs["text"], "pooled_text": inputs["pooled_text"]}
    assert np.isfinite(trainer.fit(data, verbose=0).history["loss"][0])
    after = [weight.numpy() for weight in model.trainable_weights]
    # A bias of keys adds the same number to all scores of a query, unless keys are normalized or rotated, as here.
    assert all((old != new).any() for old, new in zip(before, after, strict=True))


def test_single_stream_block_is_its_formula():
    block = SingleStreamBlock(MultiHeadAttention(2, 4, use_output_bias=False), DenseFeedForward(16), condition_dim=3)
    random = np.random.default_rng(1)
    x, condition = random.normal(size=(2, 5, 8)).astype("float32"), random.normal(size=(2, 3)).astype("float32")
    block.build(x.shape)
    for weight in block.trainable_weights:
        weight.assign(random.normal(size=weight.shape))
    weights = {weight.path.split("/", 1)[-1]: weight.numpy().astype("float64") for weight in block.weights}
    mask = np.arange(5) < np.array([[5], [3]])
    silu = condition / (1 + np.exp(-condition))
    shift, scale = np.split(silu @ weights["residual/modulation/projection/kernel"], 2, axis=-1)
    offset, factor = np.split(weights["residual/modulation/projection/bias"], 2)
    gate = silu @ weights["residual/gate/kernel"] + weights["residual/gate/bias"]
    normed = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    y = (normed * (1 + scale + factor)[:, None] + (shift + offset)[:, None]).astype("float32")
    inner = block.attention(y, y, value_mask=mask) + block.feedforward(y)
    found = block(x, condition, padding_mask=mask)
    np.testing.assert_allclose(found, x + gate[:, None] * np.asarray(inner), rtol=2e-4, atol=2e-4)
    copy = SingleStreamBlock.from_config(block.get_config())
    copy.build(x.shape)
    copy.set_weights(block.get_weights())
    np.testing.assert_array_equal(copy(x, condition, padding_mask=mask), found)


def test_patches_turn_by_rows_and_columns():
    x = np.random.default_rng(2).normal(size=(1, 4, 2, 10))
    positions = np.array([-1, 0, 7, 11])  # Rows and columns of a grid with 4 columns: none, (0, 0), (1, 3), (2, 3).
    found, _ = GridRotary(4, (4, 2), max_wavelength=50.0).rotate(x, x, positions, positions)
    pairs = x.reshape(4, 2, 5, 2) @ np.array([1, 1j])
    rates_of_row, rates_of_column = np.array([0, 0, 1, 50.0**-0.5, 0]), np.array([0, 0, 0, 0, 1.0])
    rows, columns = np.array([0, 0, 1, 2]), np.array([0, 0, 3, 3])
    turned = pairs * np.exp(1j * (np.outer(rows, rates_of_row) + np.outer(columns, rates_of_column)))[:, None]
    expected = np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_positions_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="even numbers"):
        GridRotary(4, (3, 2))
    with pytest.raises(ValueError, match="num_columns"):
        GridRotary(0)
    with pytest.raises(ValueError, match="too small"):
        GridRotary(4, (8, 8)).rotate(np.ones((1, 2, 1, 8)), np.ones((1, 2, 1, 8)), np.arange(2), np.arange(2))
    with pytest.raises(ValueError, match="rotate queries and keys"):
        JointAttention(2, 4, position=ALiBi())


def test_joint_attention_with_positions_is_saved():
    layer = JointAttention(2, 10, "rms_norm", position=GridRotary(2, (4, 2)))
    x, context = np.random.default_rng(3).normal(size=(1, 6, 8)), np.ones((1, 3, 5))
    found, _ = layer(x, context)
    copy = keras.layers.deserialize(keras.layers.serialize(layer))
    copy(x, context)
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(copy(x, context)[0], found)
    assert copy.position.features == (4, 2)
