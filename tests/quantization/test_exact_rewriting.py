"""Factors and rotations that move through a model without changing its outputs."""

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.backend import keras_private
from keras_transformer.quantization import (
    AWQ,
    GPTQ,
    Clipping,
    WeightQuantizationError,
    WeightScheme,
    quantize_weights,
    rotate,
    smooth,
)
from keras_transformer.quantization.kernels import kernels_of
from keras_transformer.quantization.observation.calibration import as_batches, calibrate
from keras_transformer.quantization.observation.statistics import Statistics
from keras_transformer.quantization.transforms.folding import Fold, find_folds
from keras_transformer.quantization.transforms.hadamard import hadamard, orthogonal

SIZE = models.Size(1, 64, 4, 128)


def randomized(model, random, deviation=0.1):
    for variable in model.trainable_variables:
        variable.assign(np.asarray(variable) + random.normal(0, deviation, variable.shape))
    return model


def tokens(random, batch=2, length=9):
    ids = random.integers(0, 60, (batch, length)).astype("int32")
    return {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}


def norm_of(model, end):
    layers = keras_private.flatten_layers(model)
    return next(layer for layer in layers if layer.built and (layer.path or "").endswith(end))


@pytest.fixture
def llama(random):
    backbone = models.Llama(SIZE, 60, num_key_value_heads=2, use_attention_bias=True, use_feedforward_bias=True)
    return randomized(tasks.LanguageModel(backbone), random)


def names(folds):
    short = ("/".join(fold.producer.path.split("/")[-2:]) for fold in folds)
    return {name: sorted(kernel.layer.name for kernel in fold.readers) for name, fold in zip(short, folds, strict=True)}


def test_folds_of_a_decoder(llama, random):
    assert names(find_folds(llama, tokens(random))) == {
        "mixer_residual/norm": ["key", "query", "value"],
        "self_attention/value": ["attention_output"],
        "feedforward_residual/norm": ["gate", "hidden"],
        "feedforward/hidden": ["output"],
    }


def test_folds_of_layers_of_keras(random):
    """The norm feeds the residual stream too in the second block: only the first is exact; gelu is not linear, relu is."""
    x = keras.Input((5, 64))
    normed = keras.layers.LayerNormalization(name="pre")(x)
    y = x + keras.layers.MultiHeadAttention(4, 16, name="mha")(normed, normed)
    y = keras.layers.LayerNormalization(name="post")(y)
    z = y + keras.layers.Dense(64, name="second")(keras.layers.Dense(96, "gelu", name="first")(y))
    outputs = keras.layers.Dense(64, name="fourth")(keras.layers.Dense(96, "relu", name="third")(z))
    model = randomized(keras.Model(x, outputs), random)
    found = names(find_folds(model, as_batches(model, random.normal(size=(2, 5, 64)))[0]))
    assert found == {
        "pre": ["key", "query", "value"],
        "mha/value": ["attention_output"],
        "third": ["fourth"],
    }


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm", "zero_centered_rms_norm"])
def test_factors_change_no_output(norm, random):
    model = randomized(tasks.LanguageModel(models.Decoder(SIZE, 60, norm=norm, feedforward="gated")), random)
    data = tokens(random)
    before = model.predict_on_batch(data)
    folds = find_folds(model, data)
    assert len(folds) == 4
    for fold in folds:
        kernel, factors = fold.readers[0].rows(), np.exp(random.normal(size=fold.width))
        fold.apply(factors)
        np.testing.assert_allclose(fold.readers[0].rows(), kernel * factors[fold.channels], rtol=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(data), before, atol=1e-4 * np.abs(before).max())


def test_heads_that_share_values_share_factors(llama, random):
    fold = next(each for each in find_folds(llama, tokens(random)) if each.producer.name == "value")
    assert fold.width == 32
    heads = fold.channels.reshape(4, 16)
    assert (heads[0] == heads[1]).all()
    assert heads[2, 0] == 16
    magnitudes = np.arange(64.0)
    assert fold.of_channels(magnitudes)[[0, 31]].tolist() == [16.0, 63.0]


def test_awq_chooses_the_factors_of_the_least_error(random):
    rows = random.normal(size=(32, 64)).astype("float32") * 0.1
    channels = np.exp(2 * random.normal(size=64))
    statistics = Statistics(64)
    statistics.add(random.normal(size=(500, 64)) * channels)
    fold = Fold(None, [], np.arange(64))
    factors = AWQ(grid=10).factors(fold, [(rows, WeightScheme(4))], statistics)
    power = np.log(factors[0] / factors[1]) / np.log(statistics.mean_magnitude[0] / statistics.mean_magnitude[1])
    assert 0.1 < power < 1
    assert round(10 * power, 3).is_integer()
    assert np.sqrt(factors.max() * factors.min()) == pytest.approx(1)
    wide = factors.astype("float32")
    plain = statistics.error(Clipping().round(rows, WeightScheme(4)).values - rows)
    assert statistics.error(Clipping().round(rows * wide, WeightScheme(4)).values / wide - rows) < 0.7 * plain


class Float(Clipping):
    """Rounds nothing that could be seen."""

    def round(self, rows, scheme, statistics=None):
        return super().round(rows, WeightScheme(8, None), statistics)


def test_awq_leaves_the_float_outputs(llama, random):
    data = tokens(random, 4)
    before = llama.predict_on_batch(data)
    norm = norm_of(llama, "feedforward_residual/norm")
    scale = np.asarray(norm.scale)
    quantize_weights(llama, {"*feedforward*": WeightScheme(3)}, AWQ(Float()), [data])
    assert np.abs(np.asarray(norm.scale) / scale - 1).max() > 0.1
    error = np.square(llama.predict_on_batch(data) - before).mean() / np.square(before).mean()
    assert error < 2e-3


def test_awq_and_gptq_lose_less_than_rounding(random):
    losses = {}
    for name, method in {"nearest": "nearest", "awq": "awq", "both": AWQ(GPTQ())}.items():
        generator = np.random.default_rng(3)
        model = randomized(tasks.LanguageModel(models.Llama(SIZE, 60)), generator)
        norm = norm_of(model, "mixer_residual/norm")
        norm.scale.assign(np.exp(generator.normal(0, 1.5, 64)))
        data = tokens(generator, 16)
        before = model.predict_on_batch(data)
        quantize_weights(model, {"*attention*": WeightScheme(3)}, method, [data])
        losses[name] = np.square(model.predict_on_batch(data) - before).mean()
    assert losses["both"] < losses["awq"] < losses["nearest"]


def test_awq_loses_no_more_than_that_of_keras(random):
    """Keras divides the inputs at run time; here the norm does."""
    scale = np.exp(1.5 * random.normal(size=128))
    x = random.normal(size=(1000, 128)).astype("float32")

    def made():
        keras.utils.set_random_seed(1)
        norm = keras.layers.RMSNormalization()
        model = keras.Sequential([keras.Input((None, 128)), norm, keras.layers.Dense(48, use_bias=False)])
        norm.scale.assign(scale)
        return model

    ours, theirs = made(), made()
    expected = np.asarray(ours(x[None]))
    structure = {"pre_block_layers": [lambda ids: x[np.asarray(ids)]], "sequential_blocks": [theirs]}
    config = keras.quantizers.AWQConfig(
        dataset=[np.arange(1000)],
        tokenizer=list,
        num_samples=1,
        sequence_length=1000,
        group_size=32,
        quantization_layer_structure=structure,
    )
    theirs.quantize("awq", config=config)
    assert theirs.layers[-1].quantization_mode == "awq"
    quantize_weights(ours, WeightScheme(4, 32, has_minimum=True), "awq", x[None])
    errors = [np.square(np.asarray(model(x[None])) - expected).sum() for model in (ours, theirs)]
    assert errors[0] <= errors[1] < 0.1 * np.square(expected).sum()


def test_smooth_moves_outliers_into_weights(llama, random):
    data = tokens(random, 4)
    norm = norm_of(llama, "mixer_residual/norm")
    norm.scale.assign(np.where(np.arange(64) == 7, 50.0, np.asarray(norm.scale)))
    before = llama.predict_on_batch(data)

    def ranges():
        kernels = [kernel for kernel in kernels_of(llama) if kernel.path.endswith("query/kernel")]
        (ready,) = next(calibrate(llama, kernels, [data]))
        return ready.statistics.largest

    activations = ranges()
    paths = smooth(llama, data, strength=0.75)
    assert len(paths) == 7
    np.testing.assert_allclose(llama.predict_on_batch(data), before, atol=1e-4 * np.abs(before).max())
    after = ranges()
    assert activations.max() / np.median(activations) > 20
    assert after.max() / np.median(after) < 8


def test_smooth_uses_the_formula_of_the_paper(random):
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.LayerNormalization(), keras.layers.Dense(64, name="wide")]
    )
    x = random.normal(size=(20, 64)).astype("float32")
    activations = np.abs(np.asarray(model.layers[0](x))).max(axis=0)
    kernel = np.asarray(model.layers[1].kernel)
    smooth(model, x, strength=0.3)
    expected = activations**0.3 / np.abs(kernel).max(axis=1) ** 0.7
    factors = 1 / np.asarray(model.layers[0].gamma)
    np.testing.assert_allclose(factors / factors[0], expected / expected[0], rtol=1e-4)


@pytest.mark.parametrize("strength", [-0.1, 1.5])
def test_the_strength_of_smoothing_is_checked(strength, llama, random):
    with pytest.raises(WeightQuantizationError, match="strength"):
        smooth(llama, tokens(random), strength)


def test_smooth_needs_a_layer_that_takes_factors(random):
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "gelu"), keras.layers.Dense(64)])
    with pytest.raises(WeightQuantizationError, match="take factors"):
        smooth(model, random.normal(size=(4, 64)))


@pytest.mark.parametrize("size", [2, 4, 12, 20, 28, 36, 72, 76, 576])
def test_hadamard_matrices(size):
    """12 = 11 + 1, 28 = 2 (13 + 1), 36 = 2 (17 + 1), 72 = 71 + 1, 576 = 8 x 72."""
    matrix = hadamard(size).astype(int)
    assert set(np.unique(matrix)) == {-1, 1}
    np.testing.assert_array_equal(matrix @ matrix.T, size * np.eye(size))


def test_orthogonal_matrices_of_other_sizes():
    matrix = orthogonal(40, seed=2)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(40), atol=1e-12)
    assert hadamard(92) is None
    np.testing.assert_allclose(orthogonal(92).T @ orthogonal(92), np.eye(92), atol=1e-12)
    assert np.abs(orthogonal(36) - orthogonal(36, seed=1)).max() > 0


@pytest.mark.parametrize("make", [models.Llama, models.Gemma])
def test_rotation_leaves_the_outputs(make, random):
    """Gemma's norms store the difference from 1."""
    options = {"use_attention_bias": True, "use_feedforward_bias": True} if make is models.Llama else {}
    backbone = make(models.Size(2, 48, 4, 64), 60, **options)
    model = randomized(tasks.LanguageModel(backbone, tie_embeddings=False), random)
    data = tokens(random)
    data["padding_mask"][1, 5:] = False
    embedding = model.get_layer("token_embedding").embeddings
    before, table = model.predict_on_batch(data), np.asarray(embedding)
    rotate(model, seed=4)
    np.testing.assert_allclose(model.predict_on_batch(data), before, atol=1e-4 * np.abs(before).max())
    np.testing.assert_allclose(np.asarray(embedding), table @ orthogonal(48, seed=4), atol=1e-5)
    norm = norm_of(model, "decoder_block_1/feedforward_residual/norm")
    assert np.ptp(np.asarray(norm.scale)) == 0


def test_tied_embeddings_are_untied_for_a_rotation(llama, random):
    with pytest.raises(WeightQuantizationError, match="untie_embeddings"):
        rotate(llama)
    data = tokens(random)
    untied = tasks.untie_embeddings(llama)
    np.testing.assert_allclose(untied.predict_on_batch(data), llama.predict_on_batch(data), atol=1e-4)
    rotate(untied)
    np.testing.assert_allclose(untied.predict_on_batch(data), llama.predict_on_batch(data), atol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "layer_norm"}, "no RMS norm"),
        ({"norm": "rms_norm", "position": "learned"}, "computes something else"),
        ({"norm": "rms_norm", "residual": "post", "position": "rotary"}, "computes something else|residual stream"),
    ],
)
def test_models_that_cannot_be_rotated_stay_as_they_are(options, message, random):
    model = randomized(tasks.LanguageModel(models.Decoder(SIZE, 60, **options), tie_embeddings=False), random)
    before = model.get_weights()
    with pytest.raises(WeightQuantizationError, match=message):
        rotate(model)
    for found, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(found, expected)
