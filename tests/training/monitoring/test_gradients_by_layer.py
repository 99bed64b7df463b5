import keras
import numpy as np
import pytest

from keras_transformer import models, tasks, training

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(12, 3)).astype("float32"), RANDOM.normal(size=(12, 1)).astype("float32")


def linear(optimizer, **options):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False, name="only")])
    model.layers[0].set_weights([np.array([[0.1], [-0.2], [0.3]], "float32")])
    model.compile(optimizer, "mse", **options)
    return model


@pytest.mark.parametrize("jit_compile", [False, True])
def test_norms_of_a_linear_model(jit_compile):
    norms = training.GradientsByLayer(every=2)
    rate = 0.1
    model = linear(keras.optimizers.SGD(rate), jit_compile=jit_compile)
    model.fit(X, Y, batch_size=4, shuffle=False, verbose=0, callbacks=[norms])
    assert norms.steps == [0, 2]
    kernel, expected = np.array([[0.1], [-0.2], [0.3]], "float32"), []
    for step in range(3):
        x, y = X[4 * step : 4 * step + 4], Y[4 * step : 4 * step + 4]
        gradient = 2 * x.T @ (x @ kernel - y) / 4
        expected.append((np.linalg.norm(gradient), np.linalg.norm(kernel)))
        kernel = kernel - rate * gradient
    np.testing.assert_allclose(norms.gradients["only"], [expected[0][0], expected[2][0]], rtol=1e-4)
    np.testing.assert_allclose(norms.weights["only"], [expected[0][1], expected[2][1]], rtol=1e-5)
    np.testing.assert_allclose(norms.updates["only"], [rate * expected[0][0], rate * expected[2][0]], rtol=1e-4)
    np.testing.assert_allclose(model.get_weights()[0], kernel, rtol=1e-4)


def test_a_scaled_loss_does_not_scale_the_norms():
    plain, scaled = training.GradientsByLayer(), training.GradientsByLayer()
    linear(keras.optimizers.SGD(0.1)).fit(X, Y, verbose=0, shuffle=False, callbacks=[plain])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    linear(optimizer).fit(X, Y, verbose=0, shuffle=False, callbacks=[scaled])
    np.testing.assert_allclose(plain.gradients["only"], scaled.gradients["only"], rtol=1e-4)


def test_the_training_is_that_without_the_callback():
    def losses(callbacks):
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=2)]
        model = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1)])
        model.compile("adam", "mse", metrics=["mae"])
        history = model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
        return [*history.history["loss"], *history.history["mae"], *model.layers[1].get_weights()[2]]

    np.testing.assert_allclose(losses([training.GradientsByLayer(every=1)]), losses([]), rtol=1e-5)


@pytest.mark.parametrize("depth, names", [(1, {"decoder_block_0"}), (2, {"decoder_block_0/feedforward"})])
def test_layers_of_a_language_model(depth, names):
    model = tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=11, max_sequence_length=6))
    model.compile("adam", training.MaskedCrossentropy())
    ids = RANDOM.integers(0, 11, (2, 6))
    norms = training.GradientsByLayer(depth=depth)
    model.fit({"token_ids": ids, "padding_mask": ids >= 0}, ids, verbose=0, callbacks=[norms])
    assert names <= set(norms.gradients)
    assert list(norms.gradients)[0] == "token_embedding"
    assert all(each[0] > 0 for each in norms.updates.values())
    total = np.sqrt(sum(each[0] ** 2 for each in norms.weights.values()))
    assert total > 0


def test_refusals():
    with pytest.raises(ValueError, match="every"):
        training.GradientsByLayer(every=0)
