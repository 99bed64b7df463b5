"""Involution against the reference's figures and plain loops, and in a model of images."""

from pathlib import Path

import keras
import numpy as np
import pytest

from keras_transformer import models, tasks
from keras_transformer.backend.devices.unallocated import unallocated
from keras_transformer.models.vision import rednet
from keras_transformer.vision import Involution

DATA = Path(__file__).parents[1] / "data"

# Of the authors' networks with 1,000 classes, in millions.
PARAMETERS = {"26": 9.23, "38": 12.39, "50": 15.54, "101": 25.65, "152": 33.99}


def randomized(layer, shape):
    layer.build(shape)
    rng = np.random.default_rng(0)
    for weight in layer.weights:
        values = rng.normal(0.1, 0.5, weight.shape)
        weight.assign(np.abs(values) + 0.5 if weight.name == "moving_variance" else values)
    return layer


def test_reference():
    golden = np.load(DATA / "involution.npz")
    layer = Involution(kernel_size=3)
    x = golden["inputs/x"].transpose(0, 2, 3, 1)
    layer.build(x.shape)
    layer._reduce.set_weights([golden["params/conv1.0.weight"][:, :, 0, 0].T[None, None]])
    names = ("weight", "bias", "running_mean", "running_var")
    layer._norm.set_weights([golden[f"params/conv1.1.{name}"] for name in names])
    kernel = golden["params/conv2.0.weight"][:, :, 0, 0].T[None, None]
    layer._span.set_weights([kernel, golden["params/conv2.0.bias"]])
    np.testing.assert_allclose(layer(x), golden["outputs/y"].transpose(0, 2, 3, 1), atol=1e-5)


def by_loops(layer, x):
    """Pixel by pixel; kernels of the mean of the pixels that a stride covers, taps outside are nothing."""
    parts = [layer._reduce, layer._norm, layer._span]
    weights = [np.asarray(weight, "float64") for part in parts for weight in part.weights]
    reduce, gamma, beta, mean, variance, span, bias = weights
    (_, height, width, channels), step, size = x.shape, layer.strides, layer.kernel_size
    y = np.zeros((len(x), -(-height // step), -(-width // step), channels))
    for b, i, j in np.ndindex(y.shape[:3]):
        pixel = x[b, i * step : (i + 1) * step, j * step : (j + 1) * step].mean(axis=(0, 1))
        hidden = (pixel @ reduce[0, 0] - mean) / np.sqrt(variance + 1e-5) * gamma + beta
        kernels = (np.maximum(hidden, 0) @ span[0, 0] + bias).reshape(-1, size, size)
        for u, v in np.ndindex(size, size):
            row, column = i * step + u - size // 2, j * step + v - size // 2
            if 0 <= row < height and 0 <= column < width:
                y[b, i, j] += np.repeat(kernels[:, u, v], layer.group_channels) * x[b, row, column]
    return y


@pytest.mark.parametrize("strides", [1, 2, 3])
def test_formula(strides):
    """Sides that the stride does not divide, more groups than one."""
    x = np.random.default_rng(1).normal(size=(2, 7, 5, 8)).astype("float32")
    layer = randomized(Involution(5, strides, group_channels=4, reduction_ratio=2), x.shape)
    np.testing.assert_allclose(layer(x), by_loops(layer, x), atol=1e-4)


def test_sides_may_be_unknown():
    inputs = keras.Input((None, None, 8))
    layer = randomized(Involution(3, 2, group_channels=4, reduction_ratio=2), (None, None, None, 8))
    model = keras.Model(inputs, layer(inputs))
    x = np.random.default_rng(1).normal(size=(1, 4, 6, 8)).astype("float32")
    np.testing.assert_allclose(model.predict(x, verbose=0), by_loops(layer, x), atol=1e-4)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="must be odd"):
        Involution(4)
    with pytest.raises(ValueError, match="reduction_ratio=3 must divide the 16 channels"):
        Involution(3, reduction_ratio=3).build((None, 4, 4, 16))


@pytest.mark.parametrize("size", ["26", "50", "152"])
def test_rednet_parameters(size):
    assert set(PARAMETERS) == set(rednet.SIZES)
    with unallocated():
        model = tasks.ImageClassifier(models.RedNet(size), 1000, pooling="mean")
    count = sum(np.prod(weight.shape) for weight in model.trainable_weights)
    assert count / 1e6 == pytest.approx(PARAMETERS[size], abs=0.006)


@pytest.mark.exhaustive
def test_a_small_rednet_learns_its_images():
    keras.utils.set_random_seed(0)
    backbone = models.RedNet((1,), 16, hidden_dim=16, kernel_size=3, group_channels=8)
    model = tasks.ImageClassifier(backbone, 3, pooling="mean")
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", run_eagerly=True)
    x = np.random.default_rng(0).normal(size=(12, 16, 16, 3)).astype("float32")
    losses = model.fit(x, np.arange(12) % 3, batch_size=12, epochs=10, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
