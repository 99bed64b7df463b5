"""Files that train on the device do what `fit` does; the steps, their gradients and their errors."""

import json
import pathlib
import subprocess
import sys
from typing import NamedTuple

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer.export import (
    InputError,
    InvalidBundleError,
    InvalidModelError,
    OnDeviceTrainer,
    UnsupportedOpError,
    export_training,
    load,
    verify_bundle,
)

WORKER = pathlib.Path(__file__).with_name("training_worker.py")
CASES = ("adapters", "head", "last_block")


class Case(NamedTuple):
    """A bundle, and what Keras computes."""

    bundle: pathlib.Path
    expected: dict
    x: dict
    y: np.ndarray


@pytest.fixture(scope="module")
def cases(environment_of, tmp_path_factory):
    out = tmp_path_factory.mktemp("training")
    subprocess.run([sys.executable, str(WORKER), str(out)], check=True, env=environment_of("cases"))
    results = json.loads((out / "results.json").read_text())
    for name in results:
        assert results[name] == ["manifest.json", "model.tflite", "probes.npz", "report.html"], results[name]
    found = {}
    for name in results:
        arrays = dict(np.load(out / name / "expected.npz"))
        x = {key.removeprefix("x/"): array for key, array in arrays.items() if key.startswith("x/")}
        found[name] = Case(out / name / "bundle", arrays, x, arrays["y"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", exhaustive_but(CASES, "adapters", "head"))
def test_a_hundred_steps_have_the_losses_and_weights_of_fit(cases, name):
    case = cases[name]
    trainer = OnDeviceTrainer(case.bundle)
    (output,) = trainer.infer(case.x)
    np.testing.assert_allclose(trainer.infer(case.x)[output], case.expected["before"], rtol=0, atol=2e-6)

    losses = [trainer.train(case.x, case.y) for _ in case.expected["losses"]]

    np.testing.assert_allclose(losses, case.expected["losses"], rtol=0, atol=1e-5)
    assert losses[-1] < 0.5 * losses[0]
    np.testing.assert_allclose(trainer.infer(case.x)[output], case.expected["after"], rtol=0, atol=2e-4)
    state = trainer.save()
    for key in (key for key in case.expected if key.startswith("weight/")):
        np.testing.assert_allclose(state[key.removeprefix("weight/")], case.expected[key], rtol=0, atol=2e-4)
    assert [f"weight/{each}" for each in trainer.weights] == [key for key in case.expected if key.startswith("weight/")]


@pytest.mark.slow
def test_a_saved_state_goes_on_where_it_was(cases):
    case = cases["adapters"]
    first, second = OnDeviceTrainer(case.bundle), OnDeviceTrainer(case.bundle)
    for _ in range(3):
        first.train(case.x, case.y)

    second.restore(first.save())

    assert [second.train(case.x, case.y) for _ in range(3)] == [first.train(case.x, case.y) for _ in range(3)]


@pytest.mark.slow
def test_adapters_are_swapped_and_the_optimizer_stays(cases):
    case = cases["adapters"]
    trainer = OnDeviceTrainer(case.bundle)
    (output,), base = trainer.infer(case.x), trainer.save()
    before = trainer.infer(case.x)[output]
    for _ in range(3):
        trainer.train(case.x, case.y)
    assert np.abs(trainer.infer(case.x)[output] - before).max() > 1e-2

    trainer.restore({name: base[name] for name in trainer.weights})

    np.testing.assert_array_equal(trainer.infer(case.x)[output], before)
    state = trainer.save()
    assert state["optimizer/iteration"] == 3
    assert state.keys() == trainer.state.keys()
    assert set(trainer.weights) < state.keys()


@pytest.mark.slow
def test_the_bundle_is_one_for_inference_too(cases):
    case = cases["head"]
    model = load(case.bundle, "tflite")
    assert json.loads((case.bundle / "manifest.json").read_text())["metadata"] == {"classes": ["a", "b"]}
    few = {name: array[:2] for name, array in case.x.items()}
    np.testing.assert_allclose(model(few)["logits"], case.expected["before"][:2], rtol=0, atol=2e-6)
    assert verify_bundle(case.bundle)["tflite"].ratio < 1e-5


@pytest.mark.slow
def test_inputs_that_do_not_fit_are_named(cases):
    case = cases["head"]
    trainer = OnDeviceTrainer(case.bundle)
    with pytest.raises(InputError, match="input 'images'.*7, 8, 8, 3"):
        trainer.train({"images": case.x["images"][:3]}, case.y)
    with pytest.raises(InputError, match="labels"):
        trainer.train(case.x, case.y[:, :2])
    with pytest.raises(InputError, match="logits/kernel"):
        trainer.restore({"logits/bias": np.zeros(4)})


def test_a_bundle_that_does_not_train_is_refused(tmp_path):
    from keras_transformer.export import export

    export(small(), tmp_path / "bundle", "onnx", progress=False)
    with pytest.raises(InvalidBundleError, match="does not train"):
        OnDeviceTrainer(tmp_path / "bundle")


def small(units=3, **options):
    inputs = keras.Input((6,), name="x")
    hidden = keras.layers.Dense(4, "gelu", trainable=False, name="hidden")(inputs)
    return keras.Model(inputs, keras.layers.Dense(units, name="y", **options)(hidden), name="small")


X, Y = np.ones((4, 6), "float32"), np.zeros((4, 3), "float32")


@pytest.mark.parametrize(
    ("model", "batch", "options", "message"),
    [
        (small, (X, Y), {"optimizer": "sgd"}, "'small' has no loss; compile it, or pass loss="),
        (small, (X, Y), {"loss": "mse"}, "'small' has no optimizer"),
        (small, X, {"loss": "mse", "optimizer": "sgd"}, r"pair \(x, y\)"),
        (
            small,
            ({"z": X}, Y),
            {"loss": "mse", "optimizer": "sgd"},
            r"x has \['z'\]; the inputs of the model are \['x'\]",
        ),
        (small, (X, Y[:2]), {"loss": "mse", "optimizer": "sgd"}, "different numbers of examples"),
        (small, (X, ["a"] * 4), {"loss": "mse", "optimizer": "sgd"}, "y must be numbers"),
        (lambda: small(trainable=False), (X, Y), {"loss": "mse", "optimizer": "sgd"}, "no trainable weight"),
        (
            lambda: small(kernel_regularizer="l2"),
            (X, Y),
            {"loss": "mse", "optimizer": "sgd"},
            "'y/kernel' has a regularizer",
        ),
        (
            lambda: small(dtype="mixed_bfloat16"),
            (X, Y),
            {"loss": "mse", "optimizer": "sgd"},
            "'y' computes in bfloat16",
        ),
        (
            small,
            (X, Y),
            {"loss": "mse", "optimizer": keras.optimizers.SGD(gradient_accumulation_steps=2)},
            "gradient_accumulation_steps",
        ),
    ],
)
def test_what_cannot_train_is_refused_before_work(model, batch, options, message, tmp_path):
    with pytest.raises(InvalidModelError, match=message):
        export_training(model(), tmp_path / "bundle", batch, progress=False, **options)
    assert not list(tmp_path.iterdir())


def test_a_gradient_without_an_operator_names_its_layer(tmp_path):
    inputs = keras.Input((8, 8, 3), name="images")
    x = keras.layers.Flatten()(keras.layers.Conv2D(2, 3, name="stem")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(2, name="y")(x))
    batch = np.ones((4, 8, 8, 3), "float32"), np.zeros((4, 2))
    with pytest.raises(UnsupportedOpError, match="Conv2DBackpropFilter of layer .*stem"):
        export_training(model, tmp_path / "bundle", batch, loss="mse", optimizer="sgd", progress=False)
    assert not list(tmp_path.iterdir())
