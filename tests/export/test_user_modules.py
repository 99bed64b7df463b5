"""`--import`: classes of a user's file, for commands that read models."""

import subprocess
import sys

import numpy as np
import pytest

from keras_transformer.export import load
from keras_transformer.export.commands import main as cli
from keras_transformer.export.commands.user_modules import custom_objects
from keras_transformer.export.errors import InvalidModelError

_LAYERS = """
import keras
from sizes import FACTOR  # beside this file


class Scaled(keras.layers.Layer):
    def call(self, inputs):
        return inputs * FACTOR


@keras.saving.register_keras_serializable("mine")
class Shifted(keras.layers.Layer):
    def call(self, inputs):
        return inputs + 0.5


def squared(inputs):
    return inputs * inputs
"""
_TRAINING = """
import sys
import keras
{layers}
inputs = keras.Input((3,), name="x")
outputs = keras.layers.Dense(2, activation=squared, kernel_initializer="ones")(Shifted()(Scaled()(inputs)))
keras.Model(inputs, outputs).save(sys.argv[1])
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with layers of a user, and a model of them that was saved by a script."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "sizes.py").write_text("FACTOR = 3.0\n")
    (folder / "my_layers.py").write_text(_LAYERS)
    (folder / "training.py").write_text(_TRAINING.format(layers=_LAYERS))
    subprocess.run([sys.executable, folder / "training.py", folder / "model.keras"], check=True, capture_output=True)
    return folder


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """What a module leaves in the process is removed."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("my_layers", "sizes", "broken"):
        sys.modules.pop(name, None)


def export(folder, *words):
    """The status and the last line of `export` in a process of its own, and the command that runs the bundle."""
    command = [sys.executable, "-m", "keras_transformer.export.commands.main"]
    arguments = ["export", folder / "model.keras", "--out", folder / "bundle", "--formats", "onnx", *words]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, cwd=folder)
    return done.returncode, (done.stderr or done.stdout).splitlines()[-1]


@pytest.mark.slow
def test_a_model_of_a_script_is_exported_with_its_file(trained):
    status, error = export(trained)
    assert status == 1
    assert "Could not locate" in error
    assert "--import FILE.py" in error
    for module in (trained / "my_layers.py", "my_layers"):
        status, error = export(trained, "--import", str(module))
        assert status == 0, error
    inputs = np.array([[1.0, -2.0, 0.25]], "float32")
    expected = (3 * inputs + 0.5).sum() ** 2
    outputs = load(trained / "bundle", "onnx")({"x": inputs})
    np.testing.assert_allclose(next(iter(outputs.values())), [[expected, expected]], rtol=1e-6)


@pytest.mark.slow
def test_own_classes_and_functions_are_found(trained):
    found = custom_objects([str(trained / "my_layers.py")])
    assert sorted(found) == ["Scaled", "Shifted", "squared"]  # Neither `keras` nor what another module defines.
    assert found["squared"](3) == 9


@pytest.mark.slow
def test_a_missing_file_is_said_before_anything_loads(trained, capsys):
    words = ["export", trained / "model.keras", "--out", trained / "none", "--import", trained / "my_layer.py"]
    assert cli.main([str(word) for word in words]) == 1
    assert f"--import: no such file: '{trained / 'my_layer.py'}'; did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def (", "SyntaxError: invalid syntax"),
    ],
)
def test_a_module_that_fails_is_named(tmp_path, text, reason):
    (tmp_path / "broken.py").write_text(text)
    with pytest.raises(InvalidModelError, match=reason) as caught:
        custom_objects([str(tmp_path / "broken.py")])
    assert "broken.py' failed" in str(caught.value)
