"""Exports do not change a model in use, and run one at a time."""

import concurrent.futures
import threading

import keras
import numpy as np
import pytest

from keras_transformer import training
from keras_transformer.export import export, load
from keras_transformer.export.runtime.precision import full_precision

pytestmark = pytest.mark.slow

X = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")


def classifier(seed=0):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((6,), name="x"), keras.layers.Dense(8, name="hidden"), keras.layers.Dense(3)])


def adapted():
    model = training.add_lora(classifier(), rank=2, layers="hidden")
    model.layers[0].lora_kernel_b.assign(np.ones((2, 8)))
    return model


class Reader:
    """A thread that calls a model until it is stopped, and counts outputs that differ from the first."""

    def __init__(self, model):
        self.model, self.expected = model, model.predict_on_batch(X)
        self.calls = self.different = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.is_set():
            answers = (self.model.predict_on_batch(X), keras.ops.convert_to_numpy(self.model(X)))
            self.calls += 1
            self.different += not all(np.allclose(each, self.expected, rtol=0, atol=1e-6) for each in answers)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._stop.set()
        self._thread.join()


@pytest.mark.parametrize("make", [classifier, adapted])
def test_a_model_computes_the_same_while_it_is_exported(make, tmp_path):
    model = make()
    weights = [weight.numpy() for weight in model.weights]
    with Reader(model) as reader:
        export(model, tmp_path / "bundle", formats=["onnx"])
    assert reader.calls > 3
    assert reader.different == 0
    for weight, before in zip(model.weights, weights, strict=True):
        np.testing.assert_array_equal(weight, before)
    np.testing.assert_allclose(load(tmp_path / "bundle")(X)["output"], reader.expected, atol=1e-5)


def test_a_model_computes_the_same_while_its_rounding_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr("keras_transformer.export.verification.movement.DRAWS", 400)
    model = classifier()
    with Reader(model) as reader:
        export(model, tmp_path / "bundle", formats=["onnx"])
    assert reader.calls > 3
    assert reader.different == 0


def test_exports_in_two_threads_both_succeed(tmp_path):
    models = [classifier(seed) for seed in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda index: export(models[index], tmp_path / str(index), formats=["tflite", "onnx"]), range(2)))
    for index, model in enumerate(models):
        for backend in ("tflite", "onnx"):
            found = load(tmp_path / str(index), backend)(X)["output"]
            np.testing.assert_allclose(found, model.predict_on_batch(X), atol=1e-5)


def test_full_precision_lasts_until_the_last_thread_leaves():
    import tensorflow as tf

    is_enabled = tf.config.experimental.tensor_float_32_execution_enabled
    before = is_enabled()
    first, second = full_precision(), full_precision()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not is_enabled()
    second.__exit__(None, None, None)
    assert is_enabled() == before
