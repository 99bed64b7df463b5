"""MM-DiT: parity with diffusers, joint attention and its mask."""

import json
from pathlib import Path

import numpy as np
import pytest
from diffusers_names import KINDS, NAMES, of_joint_block, swapped

from keras_transformer import diffusion, models
from keras_transformer.attention import JointAttention
from keras_transformer.blocks import JointBlock
from keras_transformer.feedforward import DenseFeedForward

REFERENCE = np.load(Path(__file__).parents[1] / "data" / "mm_dit.npz")
WIDTH = 16


def of_torch(path):
    """The weight of diffusers for a path of ours."""
    name, kind = path.rsplit("/", 1)
    kind = KINDS[kind]
    if name == "patch_embedding/projection":
        value = REFERENCE[f"weights/pos_embed.proj.{kind}"]
        return value.transpose(2, 3, 1, 0) if kind == "weight" else value
    if name == "final_modulation/projection":
        return swapped(REFERENCE[f"weights/norm_out.linear.{kind}"]).T
    if name == "patches":
        return REFERENCE[f"weights/proj_out.{kind}"].T
    if not name.startswith("joint_block_"):
        return REFERENCE[f"weights/{NAMES[name]}.{kind}"].T
    block, part = name.split("/", 1)
    if part == "context_modulation/projection":
        return swapped(REFERENCE[f"weights/transformer_blocks.{block[-1]}.norm1_context.linear.{kind}"]).T
    return of_joint_block(REFERENCE, block, part, kind, WIDTH)


def test_outputs_are_those_of_diffusers():
    assert json.loads(str(REFERENCE["config"]))["class"] == "SD3Transformer2DModel"
    size = models.Size(2, WIDTH, 2, 64)
    model = models.MMDiT(size, 2, 6, num_channels=3, text_dim=5, pooled_text_dim=7, query_key_norm="rms_norm")
    for weight in model.trainable_weights:
        weight.assign(of_torch(weight.path).reshape(weight.shape))
    inputs = {name: REFERENCE[name] for name in ("images", "times", "text", "pooled_text")}
    expected = REFERENCE["output"]
    found = model.predict(inputs, verbose=0)
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.exhaustive
def test_text_conditions_the_sampler():
    model = models.MMDiT(models.Size(2, 8, 2, 16), 4, 8, num_channels=1, text_dim=6, pooled_text_dim=5)
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(random.normal(0.0, 0.3, weight.shape))
    generator = diffusion.ImageGenerator(model, num_steps=3, guidance_scale=3.0)
    assert set(generator.input) == {"noise", "text", "pooled_text", "negative_text", "negative_pooled_text"}
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


def test_masked_context_changes_nothing():
    random = np.random.default_rng(0)
    layer = JointAttention(2, 4, "rms_norm")
    x, context = random.normal(size=(2, 3, 8)), random.normal(size=(2, 4, 6))
    output, of_context = (np.asarray(each) for each in layer(x, context))
    padded = np.concatenate([context, random.normal(size=(2, 2, 6))], axis=1)
    mask = np.arange(6) < np.array([[4], [4]])
    found, found_context = (np.asarray(each) for each in layer(x, padded, context_mask=mask))
    np.testing.assert_allclose(found, output, atol=1e-5)
    np.testing.assert_allclose(found_context[:, :4], of_context, atol=1e-5)


def test_context_without_an_output():
    x, context = np.ones((1, 3, 8)), np.ones((1, 4, 8))
    block = JointBlock(JointAttention(2, 4, context_output=False), DenseFeedForward(16))
    assert tuple(block(x, context, np.ones((1, 8))).shape) == (1, 3, 8)
    assert not [weight.path for weight in block.weights if "context_query" in weight.path]
    with pytest.raises(ValueError, match="required with it"):
        JointBlock(JointAttention(2, 4), DenseFeedForward(16))
