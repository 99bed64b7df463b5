import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_transformer import models
from keras_transformer.feedforward import FEEDFORWARDS, DenseFeedForward
from keras_transformer.utils import serialization


def test_a_new_process_loads_a_model_without_importing_its_packages(tmp_path):
    model = models.Encoder(models.Size(1, 8, 2, 16), 11, position="rotary", residual="sandwich")
    inputs = {"token_ids": np.array([[1, 2, 3]]), "padding_mask": np.array([[True, True, False]])}
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "inputs.npz", **inputs)
    code = (
        "import sys, numpy as np; from keras_transformer import load_model; "
        "print(repr(np.asarray(load_model(sys.argv[1])(dict(np.load(sys.argv[2]))))[0, 0].tolist()))"
    )
    command = [sys.executable, "-c", code, tmp_path / "model.keras", tmp_path / "inputs.npz"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = np.array(eval(result.stdout.strip().splitlines()[-1]))
    np.testing.assert_allclose(loaded, np.asarray(model(inputs))[0, 0], atol=1e-6)


def test_resolve_takes_a_name_an_instance_and_a_config():
    layer = DenseFeedForward(3)
    config = keras.saving.serialize_keras_object(layer)
    choices = {"small": lambda: DenseFeedForward(3), **FEEDFORWARDS}
    assert serialization.resolve(layer, choices) is layer
    assert serialization.resolve(config, choices).intermediate_dim == 3
    assert serialization.resolve("small", choices).intermediate_dim == 3
    assert serialization.resolve(None, choices) is None


def test_resolve_refuses_the_wrong_kind_and_unknown_names():
    with pytest.raises(ValueError, match="dense, gated"):
        serialization.resolve("no_such", FEEDFORWARDS)
    with pytest.raises(ValueError, match="Expected a DenseFeedForward"):
        serialization.resolve(keras.layers.Dense(3), FEEDFORWARDS, DenseFeedForward)


@pytest.mark.parametrize("name, nearest", [("bigbrid", "bigbird"), ("Dense", "dense"), ("gatted", "gated")])
def test_choice_suggests_the_nearest_name(name, nearest):
    with pytest.raises(
        ValueError, match=rf"Unknown attention={name!r}: did you mean {nearest!r}\? Valid names: bigbird, dense, gated"
    ):
        serialization.choice(name, {"dense": 1, "gated": 2, "bigbird": 3}, argument="attention")


def test_choice_suggests_nothing_where_no_name_is_near():
    with pytest.raises(ValueError, match=r"Unknown name 'x'\. Valid names: dense, gated"):
        serialization.choice("x", {"gated": 2, "dense": 1})


def test_a_model_names_its_argument():
    with pytest.raises(ValueError, match="attention='linfromer': did you mean 'linformer'"):
        models.Encoder(models.Size(1, 8, 2, 16), 11, attention="linfromer")
    with pytest.raises(ValueError, match="position='rotery': did you mean 'rotary'"):
        models.Encoder(models.Size(1, 8, 2, 16), 11, position="rotery")
