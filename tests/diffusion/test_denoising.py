"""Training of denoisers and the loop of samplers in Keras."""

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import diffusion, models
from keras_transformer.training import AveragedWeights
from keras_transformer.utils.serialization import load_model

SIZE = models.Size(1, 16, 2, 24)
NUM_CLASSES = 5
IMAGES = np.random.default_rng(0).normal(size=(6, 8, 8, 2)).astype("float32")
LABELS = np.array([0, 1, 2, 3, 4, 5])


def make_denoiser(seed=0, **options):
    random = np.random.default_rng(seed)
    model = models.DiT(SIZE, 4, 8, num_channels=2, **{"num_classes": NUM_CLASSES, **options})
    for weight in model.trainable_weights:
        weight.assign(random.normal(0.02, 0.15, weight.shape))
    return model


@pytest.fixture(scope="module")
def denoiser():
    return make_denoiser()


def linear_denoiser(classes=False):
    """A denoiser whose prediction is easy to compute: `3 images + time (+ label)`."""
    images, times = keras.Input((1, 1, 1), name="images"), keras.Input((), name="times")
    inputs, output = {"images": images, "times": times}, 3.0 * images + keras.layers.Reshape((1, 1, 1))(times)
    if classes:
        inputs["labels"] = keras.Input((), dtype="int32", name="labels")
        output = output + keras.layers.Reshape((1, 1, 1))(keras.ops.cast(inputs["labels"], "float32"))
    return keras.Model(inputs, output)


@pytest.mark.parametrize("process", diffusion.PROCESSES)
def test_evaluation_is_the_mean_squared_error(process):
    """Times are the middles of equal parts of their distribution, noise is that of seed 0."""
    process = diffusion.PROCESSES[process]()
    trainer = diffusion.DenoisingTrainer(linear_denoiser(), process)
    trainer.compile("sgd")
    images = np.array([0.5, -1.0, 2.0, 0.1], "float32").reshape(4, 1, 1, 1)
    loss = trainer.evaluate({"images": images}, verbose=0)
    noise = np.asarray(keras.random.normal((4, 1, 1, 1), seed=0), "float64").ravel()
    times = np.asarray(process.times(np.array([0.125, 0.375, 0.625, 0.875])))
    alpha, sigma = (np.asarray(each) for each in process.coefficients(times))
    x = images.astype("float64").ravel()
    errors = (3 * (alpha * x + sigma * noise) + times - process.target(x, noise)) ** 2
    np.testing.assert_allclose(loss, errors.mean(), rtol=1e-5)
    weights = np.array([1.0, 0.0, 2.0, 0.5])
    # Keras passes on weights only together with labels, which are not used.
    weighted = trainer.evaluate({"images": images}, np.zeros(4), sample_weight=weights, verbose=0)
    np.testing.assert_allclose(weighted, (errors * weights).mean(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("process", exhaustive_but(diffusion.PROCESSES, "rectified_flow"))
def test_training_lowers_the_loss(process):
    keras.utils.set_random_seed(1)
    trainer = diffusion.DenoisingTrainer(
        models.DiT(SIZE, 4, 8, num_channels=2, num_classes=NUM_CLASSES), process, seed=3
    )
    trainer.compile(keras.optimizers.Adam(3e-3, use_ema=True, ema_momentum=0.9))
    data = {"images": np.tile(0.3 * IMAGES, (8, 1, 1, 1)), "labels": np.tile(LABELS % 5, 8)}
    before = trainer.evaluate(data, batch_size=48, verbose=0)
    trainer.fit(data, batch_size=16, epochs=30, verbose=0, callbacks=[AveragedWeights()])
    assert trainer.evaluate(data, batch_size=48, verbose=0) < 0.75 * before


def test_seed_decides_the_noise():
    denoiser = models.DiT(SIZE, 4, 8, num_channels=2, num_classes=NUM_CLASSES, label_dropout=0.0)
    data = {"images": IMAGES, "labels": LABELS}

    def errors(seed):
        return np.asarray(diffusion.DenoisingTrainer(denoiser, seed=seed)(data, training=True))

    np.testing.assert_array_equal(errors(1), errors(1))
    assert np.all(errors(1) != errors(2))


def flow(state, step_count, guidance, labels, no_class):
    """Euler's method for the velocity `3 z + t + label`, with guidance."""
    for step in range(step_count):
        time = 1 - step / step_count
        conditional, without = (3 * state + time + label for label in (labels, no_class))
        state = state - (without + guidance * (conditional - without)) / step_count
    return state


@pytest.mark.parametrize("guidance", [1.0, 2.5])
def test_loop_and_guidance(guidance):
    noise, labels = np.array([0.3, -1.0]), np.array([1, 4])
    loop = diffusion.DenoisingLoop(linear_denoiser(True), num_steps=3, guidance_scale=guidance, no_class=7)
    inputs = {"noise": noise.reshape(2, 1, 1, 1).astype("float32"), "labels": labels.astype("int32")}
    found = loop({name: keras.ops.convert_to_tensor(array) for name, array in inputs.items()})
    np.testing.assert_allclose(np.asarray(found).ravel(), flow(noise, 3, guidance, labels, 7), rtol=1e-4)


def test_loop_of_two_predictions_with_noise_and_range():
    """The table of a sampler is applied step by step, with the noise of each step but the last."""

    class Made:
        def coefficients(self, points):
            return np.array([[0.5, 0.4, 0.0, 0.3], [0.9, 0.2, 0.6, 0.7], [0.1, 0.8, -0.5, 0.0]])

        def get_config(self):
            return {}

    process = diffusion.DDPM("cosine", 30)
    loop = diffusion.DenoisingLoop(linear_denoiser(), process, Made(), num_steps=3, data_range=(-0.5, 1.5))
    noise, fresh = np.array([0.3, -1.0]), np.array([[0.2, -0.4], [1.5, 0.7]])
    assert loop.takes_step_noise
    found = loop({"noise": noise.reshape(2, 1, 1, 1), "step_noise": fresh.reshape(2, 2, 1, 1, 1)})
    with pytest.raises(ValueError, match="takes .*step_noise"):
        loop({"noise": noise.reshape(2, 1, 1, 1)})
    points = process.points(3)
    own, predicted = process.data_factors(points.alphas[:-1], points.sigmas[:-1])
    state, before, drawn = noise, 0.0, np.column_stack([fresh, [0.0, 0.0]])
    for index, (kept, new, old, noisy) in enumerate(Made().coefficients(points)):
        data = np.clip(own[index] * state + predicted[index] * (3 * state + points.times[index]), -0.5, 1.5)
        state, before = kept * state + new * data + old * before + noisy * drawn[:, index], data
    np.testing.assert_allclose(np.asarray(found).ravel(), state, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [*diffusion.SAMPLERS, "noisy"])
def test_generator_saves_loads_and_needs_its_inputs(denoiser, sampler, tmp_path):
    sampler = diffusion.DDIM(eta=0.7) if sampler == "noisy" else sampler
    process = diffusion.RectifiedFlow(shift=2.0)
    generator = diffusion.ImageGenerator(
        denoiser, process, sampler, num_steps=3, guidance_scale=1.5, data_range=(-3.0, 3.0)
    )
    random = np.random.default_rng(1)
    inputs = {
        name: random.normal(size=(2, *tensor.shape[1:])).astype("float32")
        for name, tensor in generator.input.items()
        if name != "labels"
    } | {"labels": np.array([1, 5], "int32")}
    assert ("step_noise" in inputs) == isinstance(sampler, diffusion.DDIM)
    expected = generator.predict(inputs, verbose=0)
    generator.save(tmp_path / "generator.keras")
    np.testing.assert_array_equal(load_model(tmp_path / "generator.keras").predict(inputs, verbose=0), expected)
    assert np.abs(expected[0] - expected[1]).max() > 0.1


def test_denoiser_without_classes():
    generator = diffusion.ImageGenerator(make_denoiser(num_classes=None), sampler="dpm_solver_pp", num_steps=2)
    assert set(generator.input) == {"noise"}
    assert generator.predict({"noise": IMAGES}, verbose=0).shape == IMAGES.shape
    with pytest.raises(ValueError, match="Guidance needs"):
        diffusion.ImageGenerator(make_denoiser(num_classes=None), guidance_scale=2.0)


def test_a_model_that_is_no_denoiser_is_refused():
    with pytest.raises(ValueError, match="A denoiser takes"):
        diffusion.DenoisingTrainer(models.ViT(SIZE, 4, 8))


def test_labels_are_dropped_in_training_only():
    layer = diffusion.LabelEmbedding(3, 4, dropout=0.25, seed=1)
    labels = np.tile([0, 1, 2], 500)
    table = np.arange(16.0).reshape(4, 4)
    layer(labels)
    layer.set_weights([table])
    np.testing.assert_array_equal(np.asarray(layer(labels)), table[labels])
    trained = np.asarray(layer(labels, training=True))
    dropped = np.all(trained == table[3], axis=1)
    assert 0.2 < dropped.mean() < 0.3
    np.testing.assert_array_equal(trained[~dropped], table[labels[~dropped]])


def test_timestep_embedding():
    layer = diffusion.TimestepEmbedding(4, frequency_dim=6, time_scale=100.0, max_wavelength=50.0)
    times = np.array([0.03, 0.8])
    layer(times)
    random = np.random.default_rng(2)
    weights = [random.normal(size=weight.shape) for weight in layer.weights]
    layer.set_weights(weights)
    angles = 100.0 * times[:, None] * 50.0 ** -(np.array([0, 2, 4]) / 6)
    hidden = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) @ weights[0] + weights[1]
    expected = (hidden / (1 + np.exp(-hidden))) @ weights[2] + weights[3]
    np.testing.assert_allclose(np.asarray(layer(times)), expected, atol=1e-4)
