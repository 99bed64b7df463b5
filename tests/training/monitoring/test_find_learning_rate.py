import keras
import numpy as np
import pytest

from keras_transformer import training

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(24, 3)).astype("float32")
Y = X @ np.array([[1.0], [-2.0], [0.5]], "float32")
BATCHES = [(X[index : index + 8], Y[index : index + 8]) for index in (0, 8, 16)]


def compiled(optimizer=None):
    keras.utils.set_random_seed(2)
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2, seed=1), keras.layers.Dense(1)]
    )
    model.compile(optimizer or keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def after_training(model):
    history = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return [*history.history["loss"], *np.concatenate([np.ravel(each) for each in model.get_weights()])]


def test_training_afterwards_is_as_if_there_had_been_none():
    plain, searched = compiled(), compiled()
    training.find_learning_rate(searched, BATCHES, steps=10)
    assert float(searched.optimizer.learning_rate) == np.float32(0.01)
    np.testing.assert_array_equal(after_training(searched), after_training(plain))
    # Also in the middle of a training, where the optimizer has moments.
    training.find_learning_rate(searched, BATCHES, steps=10)
    np.testing.assert_array_equal(after_training(searched), after_training(plain))


def test_rates_grow_until_the_training_diverges():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    found = training.find_learning_rate(model, BATCHES, lowest=1e-4, highest=100, steps=61, smoothing=0.5)
    np.testing.assert_allclose(np.diff(np.log10(found.rates)), 0.1, rtol=1e-5)
    np.testing.assert_allclose(found.losses[0], np.mean(BATCHES[0][1] ** 2), rtol=1e-5)
    np.testing.assert_allclose(found.smoothed[1], (found.losses[0] + 2 * found.losses[1]) / 3, rtol=1e-5)
    # The loss of this data is a parabola whose largest curvature bounds the rates that converge.
    limit = 2 / np.linalg.eigvalsh(2 * np.cov(X.T)).max()
    assert found.rates[-1] > limit / 2
    assert len(found.rates) < 61
    assert found.suggestion < found.lowest < 4 * limit


def test_refusals():
    with pytest.raises(ValueError, match="schedule"):
        training.find_learning_rate(compiled(keras.optimizers.SGD(training.WarmupCosine(0.1, 1, 10))), BATCHES)
    with pytest.raises(ValueError, match="no batches"):
        training.find_learning_rate(compiled(), [])
    with pytest.raises(ValueError, match="lowest"):
        training.find_learning_rate(compiled(), BATCHES, lowest=1.0, highest=0.1)
    with pytest.raises(ValueError, match="steps"):
        training.find_learning_rate(compiled(), BATCHES, steps=2)
    wrong = [(x * np.nan, y) for x, y in BATCHES]
    with pytest.raises(ValueError, match="not finite after 0 steps"):
        training.find_learning_rate(compiled(), wrong)
