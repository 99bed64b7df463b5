"""Dense modules of sentence-transformers, between pooling and norm: loaded, computed and written back."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from checkpoint_cases import Expected, predicted
from keras_transformer import checkpoints

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"
RANDOM = np.random.default_rng(0)
FIRST = {"linear.weight": RANDOM.normal(size=(5, 64)), "linear.bias": RANDOM.normal(size=5)}
SECOND = {"linear.weight": RANDOM.normal(size=(3, 5))}


@pytest.fixture
def folder(tmp_path):
    """A copy of sentence-bert with a module with a bias and tanh, and one without either."""
    folder = pathlib.Path(shutil.copytree(DATA / "sentence-bert", tmp_path / "folder"))
    modules = json.loads((folder / "modules.json").read_text())[:2]
    for index, (tensors, activation) in enumerate([(FIRST, "activation.Tanh"), (SECOND, "linear.Identity")], start=2):
        path = f"{index}_Dense"
        modules.append({"idx": index, "name": str(index), "path": path, "type": "sentence_transformers.models.Dense"})
        (folder / path).mkdir()
        outputs, inputs = tensors["linear.weight"].shape
        settings = {"in_features": inputs, "out_features": outputs, "bias": "linear.bias" in tensors}
        settings["activation_function"] = f"torch.nn.modules.{activation}"
        (folder / path / "config.json").write_text(json.dumps(settings))
        save_file(
            {name: array.astype("float32") for name, array in tensors.items()}, folder / path / "model.safetensors"
        )
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def test_vectors_and_tensors(folder, tmp_path):
    inputs = Expected(DATA / "sentence-bert").inputs
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:2]))
    (pooled,) = predicted(checkpoints.from_huggingface(folder, verbose=0), inputs).values()
    (folder / "modules.json").write_text(json.dumps(modules))
    model = checkpoints.from_huggingface(folder, verbose=0)
    (found,) = predicted(model, inputs).values()
    wanted = np.tanh(pooled @ FIRST["linear.weight"].T + FIRST["linear.bias"]) @ SECOND["linear.weight"].T
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    checkpoints.to_huggingface(model, tmp_path / "again", verbose=0)
    for path in (".", "2_Dense", "3_Dense"):
        before, after = (load_file(each / path / "model.safetensors") for each in (folder, tmp_path / "again"))
        assert {name: array.tobytes() for name, array in before.items()} == {
            name: array.tobytes() for name, array in after.items()
        }
    assert (tmp_path / "again" / "3_Dense" / "config.json").is_file()
    backbone = checkpoints.from_huggingface(folder, task="backbone", verbose=0)
    assert backbone.output_shape == (None, None, 16)


def test_what_is_refused(folder):
    file = folder / "2_Dense" / "config.json"
    settings = json.loads(file.read_text())
    for name, value in (("activation_function", "torch.nn.Softplus"), ("module_input_name", "token_embeddings")):
        file.write_text(json.dumps({**settings, name: value}))
        with pytest.raises(checkpoints.ConfigError, match=f"2_Dense/config.json: '{name}'"):
            checkpoints.from_huggingface(folder, verbose=0)
    file.write_text(json.dumps({**settings, "out_features": 6}))
    with pytest.raises(checkpoints.TensorShapeError, match="2_Dense/linear.weight"):
        checkpoints.from_huggingface(folder, verbose=0)
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(checkpoints.MissingFileError, match="2_Dense has no model.safetensors"):
        checkpoints.from_huggingface(folder, verbose=0)
