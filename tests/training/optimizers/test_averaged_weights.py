import keras
import numpy as np
import pytest

from keras_transformer.training import AveragedWeights

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(8, 3)).astype("float32"), RANDOM.normal(size=(8, 1)).astype("float32")


class Watch(keras.callbacks.Callback):
    """Weights at the ends of epochs, and during evaluation."""

    def __init__(self):
        super().__init__()
        self.at_end, self.at_test, self.at_begin = [], [], []

    def on_epoch_begin(self, epoch, logs=None):
        self.at_begin.append(self.model.get_weights()[0])

    def on_test_batch_end(self, batch, logs=None):
        self.at_test.append(self.model.get_weights()[0])

    def on_epoch_end(self, epoch, logs=None):
        self.at_end.append(self.model.get_weights()[0])


def fit(*callbacks, momentum=0.9, accumulated=None):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False)])
    model.layers[0].set_weights([np.array([[0.1], [-0.2], [0.3]], "float32")])
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=momentum, gradient_accumulation_steps=accumulated)
    model.compile(optimizer, "mse", run_eagerly=True)
    watch = Watch()
    model.fit(X, Y, epochs=5, shuffle=False, validation_data=(X, Y), callbacks=[*callbacks, watch], verbose=0)
    return model, watch


def averages(weights, momentum=0.9):
    """Of one update an epoch, in float64; the average begins with the weights after the first."""
    average, result = weights[0].astype("float64"), []
    for weight in weights:
        average = momentum * average + (1 - momentum) * weight.astype("float64")
        result.append(average)
    return result


def test_evaluates_with_the_average_and_trains_on_without():
    _, plain = fit()
    model, watch = fit(AveragedWeights())
    for one, other in zip(plain.at_end, watch.at_end, strict=True):
        np.testing.assert_array_equal(one, other)  # To the last bit.
    np.testing.assert_allclose(watch.at_test, averages(watch.at_end), atol=1e-6)
    np.testing.assert_allclose(model.get_weights()[0], averages(watch.at_end)[-1], atol=1e-6)


def test_average_stands_in_the_model_between_epochs():
    _, plain = fit()
    _, watch = fit(AveragedWeights(swap_on_epoch=True))
    np.testing.assert_allclose(watch.at_end, averages(plain.at_end), atol=1e-6)
    for one, other in zip(plain.at_begin, watch.at_begin, strict=True):
        np.testing.assert_array_equal(one, other)


def test_accumulated_gradients():
    """Every second batch updates; the average starts from the weights after the first update, and goes on each batch."""
    model, watch = fit(AveragedWeights(), accumulated=2)
    first, *rest = watch.at_end
    np.testing.assert_array_equal(first, watch.at_begin[0])
    np.testing.assert_array_equal(rest[0], rest[1])
    assert (rest[0] != first).all()
    np.testing.assert_allclose(watch.at_test, [first, *averages(rest)], atol=1e-6)
    np.testing.assert_allclose(model.get_weights()[0], averages(rest)[-1], atol=1e-6)


def test_needs_an_optimizer_that_averages():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    with pytest.raises(ValueError, match="use_ema"):
        model.fit(X, Y, validation_data=(X, Y), callbacks=[AveragedWeights()], verbose=0)
