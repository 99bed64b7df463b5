"""`keras.models.load_model` after the light `import keras_transformer`."""

import importlib
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
from variants import exhaustive_but

from keras_transformer import feedforward, models, training
from keras_transformer.layers.ternary import TernaryPolicy
from keras_transformer.utils import keras_registration

# Of both imports, in either order; what loading needs is imported by loading alone.
ORDERS = {
    "keras first": "import keras; import keras_transformer",
    "keras_transformer first": "import keras_transformer; import keras",
    "a search for keras between": "import keras_transformer, importlib.util as u; u.find_spec('keras'); import keras",
    "keras_transformer twice": "import keras_transformer; keras_transformer.utils; import keras, keras_transformer",
}
SCRIPT = """
assert not [name for name in sys.modules if name.startswith("keras_transformer.models")]
model = keras.models.load_model(sys.argv[1])
outputs = model(dict(np.load(sys.argv[2])))
model.save(sys.argv[3])
again = keras.models.load_model(sys.argv[3])
print(json.dumps([np.asarray(outputs).tolist(), np.asarray(again(dict(np.load(sys.argv[2])))).tolist()]))
"""


def run(code, *arguments):
    command = [sys.executable, "-c", f"import sys, json, numpy as np; {code}", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model with layers of several packages, an activation of this package, and its loss, metric and optimizer."""
    folder = tmp_path_factory.mktemp("saved")
    block = feedforward.DenseFeedForward(16, activation="quick_gelu")
    model = models.Encoder(models.Size(1, 8, 2, 16), 11, position="rotary", residual="sandwich", feedforward=block)
    dense = keras.layers.Dense(4, activation=feedforward.gelu_tanh, name="head")
    output = dense(model.output)
    model = keras.Model(model.input, output)
    model.compile(
        training.LayerwiseAdamW(multipliers={"head": 0.5}),
        training.MaskedCrossentropy(),
        metrics=[training.MaskedAccuracy()],
    )
    inputs = {"token_ids": np.array([[1, 2, 3]]), "padding_mask": np.array([[True, True, False]])}
    model.save(folder / "model.keras")
    np.savez(folder / "inputs.npz", **inputs)
    return folder, np.asarray(model(inputs))


@pytest.mark.slow
@pytest.mark.parametrize("order", exhaustive_but(ORDERS, "a search for keras between"))
def test_load_model_after_the_light_import(saved, tmp_path, order):
    folder, expected = saved
    printed = run(ORDERS[order] + SCRIPT, folder / "model.keras", folder / "inputs.npz", tmp_path / "again.keras")
    for outputs in json.loads(printed):
        np.testing.assert_allclose(outputs, expected, atol=1e-6)


def test_placeholders_are_exactly_the_registered_objects():
    """A class that registers itself in another way than by `@serializable` alone would be missed."""
    for module in {module for module, _, _ in keras_registration.serializable_objects()}:
        importlib.import_module(module)
    custom = keras.saving.get_custom_objects().items()
    registered = {(value.__module__, value.__name__) for key, value in custom if key.startswith("keras_transformer>")}
    assert {(module, name) for module, _, name in keras_registration.serializable_objects()} == registered


def test_names_are_unique():
    names = [name for _, _, name in keras_registration.serializable_objects()]
    assert len(names) == len(set(names)) > 100


def test_import_of_keras_loads_no_package_and_leaves_its_loader():
    code = (
        "import keras_transformer; import keras; "
        "packages = [name for name in sys.modules if name.count('.') == 1 and name.startswith('keras_transformer.')]; "
        "finders = [type(each).__name__ for each in sys.meta_path]; "
        "print(json.dumps([sorted(packages), type(keras.__spec__.loader).__name__, '_KerasFinder' in finders]))"
    )
    assert json.loads(run(code)) == [
        ["keras_transformer.utils", "keras_transformer.version"],
        "SourceFileLoader",
        False,
    ]


def test_ternary_policy_is_loaded(tmp_path):
    policy = TernaryPolicy("float32")
    keras.Sequential([keras.Input((3,)), feedforward.BitDense(2, dtype=policy)]).save(tmp_path / "model.keras")
    code = "import keras, keras_transformer; print(type(keras.models.load_model(sys.argv[1]).layers[0].dtype_policy))"
    assert "TernaryPolicy" in run(code, tmp_path / "model.keras")
