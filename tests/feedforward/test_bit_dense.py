"""BitNet b1.58: the layer against the reference, in blocks, in training, and frozen."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import models, tasks
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import EncoderBlock
from keras_transformer.feedforward import BitDense, GatedFeedForward, TernaryPolicy, frozen_twin, ternary_twin
from keras_transformer.layers.projection import Projection
from keras_transformer.layers.ternary import int8_activations, ternary_weights
from keras_transformer.utils.serialization import load_model

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "bitlinear_b158.npz")
SIZE = models.Size(num_layers=2, hidden_dim=16, num_heads=2, intermediate_dim=32)


def layer_of_golden():
    layer = BitDense(24)
    layer.build(GOLDEN["inputs/x"].shape)
    layer.kernel.assign(GOLDEN["params/weight"].T)
    return layer


def test_reference():
    layer = layer_of_golden()
    codes, scale = ternary_weights(layer.kernel)
    np.testing.assert_array_equal(codes, GOLDEN["outputs/w_ternary"].T)
    np.testing.assert_allclose(scale, GOLDEN["outputs/w_mean_abs"], rtol=1e-6)
    numbers, scale = int8_activations(GOLDEN["inputs/x"])
    np.testing.assert_array_equal(numbers, GOLDEN["outputs/x_int8"])
    np.testing.assert_allclose(scale, GOLDEN["outputs/x_scale"], rtol=1e-6)
    np.testing.assert_allclose(layer(GOLDEN["inputs/x"]), GOLDEN["outputs/y"], atol=2e-6)


def test_projection_under_the_policy_is_the_reference():
    layer = Projection("btd,dnh->btnh", output_shape=(None, 4, 6), dtype=TernaryPolicy())
    x = GOLDEN["inputs/x"]
    layer.build(x.shape)
    layer.kernel.assign(GOLDEN["params/weight"].T.reshape(16, 4, 6))
    np.testing.assert_allclose(np.reshape(layer(x), (2, 12, 24)), GOLDEN["outputs/y"], atol=2e-6)


def test_vectors_of_zeros_stay_zeros():
    assert np.all(np.asarray(layer_of_golden()(np.zeros((1, 3, 16)))) == 0)


def test_gradients_pass_as_if_nothing_was_rounded():
    x, target = GOLDEN["inputs/x"], np.random.default_rng(0).normal(size=(2, 12, 24)).astype("float32")
    layer = layer_of_golden()
    inputs = keras.Input((12, 16))
    model = keras.Model(inputs, layer(inputs))
    model.compile(keras.optimizers.SGD(1.0), loss="mse")
    before = np.asarray(layer.kernel)
    error = 2 * (np.asarray(layer(x)) - target) / target.size
    rounded = (GOLDEN["outputs/x_int8"] / GOLDEN["outputs/x_scale"]).reshape(-1, 16)
    model.train_on_batch(x, target)
    np.testing.assert_allclose(before - np.asarray(layer.kernel), rounded.T @ error.reshape(-1, 24), atol=1e-5)


def test_blocks_under_the_policy_are_ternary_throughout_and_know_it_when_loaded(tmp_path):
    policy = TernaryPolicy("float32")
    inputs = keras.Input((None, 16))
    block = EncoderBlock(MultiHeadAttention(2, 8, dtype=policy), GatedFeedForward(32, dtype=policy), dtype=policy)
    model = keras.Model(inputs, block(inputs))
    x = np.random.default_rng(0).normal(size=(2, 5, 16)).astype("float32")
    output = np.asarray(model(x))
    projections = [layer for layer in model._flatten_layers() if isinstance(layer, Projection)]
    assert len(projections) == 7
    assert all(isinstance(layer.dtype_policy, TernaryPolicy) for layer in projections)
    for layer in projections:  # What does not change the rounded kernel changes nothing.
        codes, scale = (np.asarray(part) for part in ternary_weights(layer.kernel))
        layer.kernel.assign(codes * scale / max(np.abs(codes).mean(), 1e-3))
    np.testing.assert_allclose(model(x), output, atol=1e-4)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(x), model(x))


def language_model():
    keras.utils.set_random_seed(1)
    return tasks.LanguageModel(models.Decoder(SIZE, 30, position="rotary", feedforward="gated", norm="rms_norm"))


def inputs():
    ids = np.random.default_rng(1).integers(0, 30, (4, 8)).astype("int32")
    return {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}


def test_a_twin_has_the_weights_and_rounds_them():
    model = language_model()
    twin = ternary_twin(model)
    for weight, other in zip(model.weights, twin.weights, strict=True):
        assert weight.path == other.path
        np.testing.assert_array_equal(weight, other)
    assert np.abs(np.asarray(twin(inputs())) - np.asarray(model(inputs()))).max() > 1e-3
    assert len(twin.generate([3, 1, 4], max_new_tokens=5)) == 5


@pytest.mark.exhaustive
def test_it_learns():
    model = ternary_twin(language_model())
    data = inputs()
    model.compile(keras.optimizers.Adam(5e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(data, np.roll(data["token_ids"], -1, 1), epochs=40, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]


@pytest.mark.parametrize("make", [lambda: ternary_twin(language_model()), lambda: bit_dense_model()])
def test_frozen_computes_the_same_bit_for_bit(make, tmp_path):
    model = make()
    frozen = frozen_twin(model)
    data = inputs() if isinstance(model, tasks.LanguageModel) else GOLDEN["inputs/x"]
    np.testing.assert_array_equal(frozen(data), model(data))
    kernels = [
        weight for weight in frozen.weights if f"{weight.path.rpartition('/')[0]}/ternary_scale" in paths(frozen)
    ]
    kernels = [weight for weight in kernels if weight.path.endswith("/kernel")]
    assert len(kernels) == len([path for path in paths(frozen) if path.endswith("ternary_scale")]) > 0
    assert all(set(np.unique(weight)) <= {-1.0, 0.0, 1.0} and not weight.trainable for weight in kernels)
    assert frozen_twin(frozen) is frozen
    frozen.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(load_model(tmp_path / "model.keras")(data), frozen(data))


def paths(model):
    return {weight.path for weight in model.weights}


def bit_dense_model():
    symbolic = keras.Input((12, 16))
    return keras.Model(symbolic, BitDense(24, use_bias=True, activation="relu")(symbolic))


def test_a_model_without_ternary_weights_is_frozen_as_it_is():
    model = language_model()
    assert frozen_twin(model) is model


def test_scales_are_of_full_precision_under_mixed_precision():
    full = ternary_twin(language_model())
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = language_model()
    finally:
        keras.config.set_dtype_policy("float32")
    mixed = ternary_twin(half)
    assert {layer.compute_dtype for layer in mixed._flatten_layers() if isinstance(layer, Projection)} == {"bfloat16"}
    expected = np.asarray(full(inputs()))
    difference = np.abs(np.asarray(ops.cast(mixed(inputs()), "float32")) - expected).max()
    assert difference < 0.15 * np.abs(expected).max()
