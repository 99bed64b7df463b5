"""Backbones whose last block computes the first token alone: the same outputs and gradients, of fewer products."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import attention, models, positions, tasks
from keras_transformer.backend.gradients.vjp import vjp
from keras_transformer.blocks import RESIDUALS

SIZE = models.Size(2, 32, 2, 40)
TOKENS = np.array([[5, 1, 4, 2, 9, 3], [7, 7, 2, 0, 0, 0]])
POSITIONS = {
    "none": None,
    "rotary": positions.Rotary(max_wavelength=50.0),
    "xpos": positions.XPos(scale_base=9.0),
    "alibi": positions.ALiBi(symmetric=True),
    "relative_bias": positions.RelativeBias(8, 10, initializer="random_normal"),
    "gated_relative_bias": positions.GatedRelativeBias(positions.RelativeBias(8, 10, initializer="random_normal")),
    "axial_rotary": positions.AxialRotary(grid_size=(2, 3)),
    "relative_grid_bias": positions.RelativeGridBias(grid_size=(2, 3), initializer="random_normal"),
    "shaw": positions.ShawRelative(max_distance=2, initializer="random_normal"),
    "transformer_xl": positions.TransformerXLRelative(width=32),
}
ONE_STREAM = sorted(set(RESIDUALS) - {"residual", "ada_ln_zero"})  # Two streams, and a condition.


def inputs():
    return {"token_ids": ops.convert_to_tensor(TOKENS, "int32"), "padding_mask": ops.convert_to_tensor(TOKENS > 0)}


def trained_looking(model):
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(weight + random.normal(0.0, 0.2, weight.shape))
    return model


def compare(backbone, given):
    """Compares outputs, and the gradients of every weight that the first token depends on."""
    short = models.first_token(trained_looking(backbone))
    assert [id(weight) for weight in short.weights] == [id(weight) for weight in backbone.weights]
    weights = backbone.trainable_variables
    cotangent = np.random.default_rng(1).normal(size=(len(keras.tree.flatten(given)[0]), 1, 32)).astype("float32")

    def run(model):
        def first(*values):
            return model.stateless_call(values, model.non_trainable_variables, given, training=True)[0][:, :1]

        value, pullback = vjp(first, *(ops.convert_to_tensor(np.array(weight)) for weight in weights))
        return [value, *pullback(ops.convert_to_tensor(cotangent))]

    for found, expected in zip(run(short), run(backbone), strict=True):
        expected = np.array(expected)
        np.testing.assert_allclose(np.array(found), expected, atol=2e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("name", POSITIONS)
def test_outputs_and_gradients_are_those_of_the_first_token(name):
    compare(models.Encoder(SIZE, 10, position=("sinusoidal", POSITIONS[name])), inputs())


@pytest.mark.parametrize("name", ONE_STREAM)
def test_every_residual_scheme_of_one_stream(name):
    compare(models.Encoder(SIZE, 10, residual=name, feedforward="gated"), inputs())


def test_a_vision_transformer_with_registers_and_grouped_heads():
    heads = attention.MultiHeadAttention(4, 8, num_key_value_heads=2, query_key_norm="rms_norm")
    backbone = models.ViT(SIZE, 4, 8, num_register_tokens=2, attention=heads)
    compare(backbone, ops.convert_to_tensor(np.random.default_rng(2).random((3, 8, 8, 3)), "float32"))


def test_a_classifier_is_saved_and_its_maps_are_those_of_all_tokens(tmp_path):
    backbone = trained_looking(models.ViT(SIZE, 4, 8))
    images = np.random.default_rng(2).random((3, 8, 8, 3), dtype="float32")
    head = tasks.ImageClassifier(models.first_token(backbone), 5)
    whole = tasks.ImageClassifier(backbone, 5)
    whole.layers[-1].set_weights(head.layers[-1].get_weights())
    expected = np.array(whole(images))
    head.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("encoder_block_1").output.shape == (None, 1, 32)
    np.testing.assert_allclose(np.array(loaded(images)), expected, atol=1e-6)
    maps, of_all = (attention.attention_maps(model)(images) for model in (head, whole))
    for path, scores in of_all.items():
        np.testing.assert_allclose(np.array(maps[path]), np.array(scores), atol=1e-6)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="counts a graph of TensorFlow")
def test_five_sixths_of_a_block_are_not_computed():
    from keras_transformer.planning.step_cost import training_step

    backbone = models.ViT(models.Size(3, 32, 1, 128), 4, 32)  # 65 tokens: 2 * 65 products of scores to 12 * 32.
    blocks = training_step(backbone, 2, 1).flops, training_step(models.first_token(backbone), 2, 1).flops
    one = 2 * 65 * 32 * 32  # Multiplications and additions of a projection of one row, of whose two there are both.
    scores = 2 * 65 * 65 * 32
    saved = 2 * 3 * (10 * one + 2 * scores) * 64 / 65  # Rows, with both gradients, tokens that are not computed.
    assert abs(blocks[0] - blocks[1] - saved) < 0.02 * saved


REFUSED = {
    "mixture_of_experts": (lambda: models.Encoder(SIZE, 10, feedforward="mixture_of_experts"), "MixtureOfExperts"),
    "clustered": (lambda: models.Encoder(SIZE, 10, attention="clustered"), "is not softmax attention"),
    "streams": (lambda: models.Encoder(SIZE, 10, residual="residual"), "final_norm"),
    "batch_norm": (lambda: models.Encoder(SIZE, 10, norm="batch_norm"), "final_norm"),
    "decoder": (lambda: models.GPT2(SIZE, 10), "does not end with an EncoderBlock"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_parts_that_need_all_tokens_are_named(name):
    build, reason = REFUSED[name]
    with pytest.raises(ValueError, match=reason):
        models.first_token(build())
