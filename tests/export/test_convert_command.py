"""`keras-transformer convert`: a checkpoint to a `.keras` file, and back."""

import pathlib

import numpy as np
from safetensors.numpy import load_file

from keras_transformer import checkpoints, load_model
from keras_transformer.export.commands import main as cli

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "checkpoints" / "bert-SequenceClassification"


def run(*words):
    return cli.main(["convert", *map(str, words)])


def test_there_and_back(tmp_path, capsys):
    file, folder = tmp_path / "bert.keras", tmp_path / "bert"
    assert run(FOLDER, file) == 0
    assert "parameters" in capsys.readouterr().err
    loaded = load_model(file)
    expected = checkpoints.from_huggingface(FOLDER, verbose=0)
    for one, other in zip(loaded.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert run(file, folder, "--like", FOLDER) == 0
    np.testing.assert_equal(load_file(folder / "model.safetensors"), load_file(FOLDER / "model.safetensors"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "bert.keras"]


def test_refusals_are_one_line_and_write_nothing(tmp_path, capsys):
    for words, reason in (
        ((FOLDER, tmp_path / "bert.h5"), "must be named .keras"),
        ((tmp_path, tmp_path / "bert.keras"), "contains no config.json"),
        ((tmp_path / "nowhere", tmp_path / "bert.keras"), "no such folder"),
        ((FOLDER, tmp_path / "bert.keras", "--like", FOLDER), "--like"),
        ((tmp_path / "x.keras", tmp_path / "folder"), "--like FOLDER"),
    ):
        assert run(*words) == 1
        error = capsys.readouterr().err.strip().splitlines()
        assert reason in error[-1]
        assert error[-1].startswith("keras-transformer: error: ")
    assert list(tmp_path.iterdir()) == []
