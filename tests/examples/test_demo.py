"""The demo, end to end in a process of its own, on images that this file draws."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from keras_transformer.export import ExportError, load
from keras_transformer.export.commands.writing import demo
from keras_transformer.export.data.report import readable_size

pytestmark = pytest.mark.slow


def keras_transformer(*words, cwd):
    command = [sys.executable, "-m", "keras_transformer.export.commands.main", *map(str, words)]
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def draw_bars(folder, count, seed):
    """Upright bars and lying bars, at random places."""
    generator = np.random.default_rng(seed)
    for name in ("lying", "upright"):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            picture = generator.integers(0, 60, (8, 8)).astype("uint8")
            place = generator.integers(1, 7)
            if name == "lying":
                picture[place] = 220
            else:
                picture[:, place] = 220
            Image.fromarray(picture).save(folder / name / f"{index}.png")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("demo")
    draw_bars(root / "bars" / "train", 100, seed=0)
    draw_bars(root / "bars" / "test", 20, seed=1)
    return root, keras_transformer("demo", "--data-dir", "bars", "--out", "out", "--epochs", 8, cwd=root)


def test_succeeds_and_shows_progress(finished):
    _, process = finished
    assert process.returncode == 0, process.stderr
    assert process.stderr.startswith("This takes some minutes and writes into 'out':\n  1. read the images of bars\n")
    assert f"The report, a page for a browser: {os.path.join('out', 'bundle', 'report.html')}\n" in process.stdout
    assert "200 training and 40 test images, 8x8x1, 2 classes" in process.stderr
    assert re.search(r"epoch 8/8  loss \d\.\d{3}, accuracy", process.stderr)
    assert "Traceback" not in process.stderr
    assert "WARNING" not in process.stderr


@pytest.mark.parametrize("is_terminal, epochs", [(True, [1, 2, 3, 4, 40]), (False, [4, 40])])
def test_every_epoch_is_shown_on_a_terminal(is_terminal, epochs, monkeypatch):
    lines = []
    monkeypatch.setattr(demo.os, "isatty", lambda descriptor: is_terminal)
    monkeypatch.setattr(demo, "_to_user", lines.append)
    report = demo._progress(40)
    for epoch in (0, 1, 2, 3, 39):
        report.on_epoch_end(epoch, {"loss": 1.0, "accuracy": 0.5, "val_accuracy": 0.5})
    assert [int(line.split("/")[0].removeprefix("epoch ")) for line in lines] == epochs


def test_table(finished):
    _, process = finished
    rows = {line.split()[0]: re.split(r"  +", line.strip()) for line in process.stdout.splitlines() if "ms" in line}
    assert list(rows) == ["keras", "saved_model", "tflite", "onnx"]
    accuracies = {row[2] for row in rows.values()}
    assert len(accuracies) == 1  # the same answers everywhere
    assert float(accuracies.pop().rstrip("%")) >= 90
    for name, row in rows.items():
        assert float(row[3].removesuffix(" ms")) > 0
        assert float(row[4].removesuffix(" ms")) > 0
        assert name == "keras" or float(row[5]) <= 1e-5
    assert "40 test examples" in process.stdout


def test_accuracy_and_size_are_those_of_the_files(finished):
    root, process = finished
    files = sorted((root / "bars" / "test").rglob("*.png"))
    pixels = np.stack([np.asarray(Image.open(file), "float32") for file in files])[..., None]
    answers = load(root / "out" / "bundle", "tflite")(pixels)["probabilities"].argmax(-1)
    accuracy = np.mean(answers == [file.parent.name == "upright" for file in files])
    (row,) = [re.split(r"  +", line) for line in process.stdout.splitlines() if line.startswith("tflite")]
    assert row[1] == readable_size((root / "out" / "bundle" / "model.tflite").stat().st_size)
    assert row[2] == f"{accuracy:.2%}"


def test_leaves_what_it_names(finished):
    root, process = finished
    out = root / "out"
    assert {each.name for each in out.iterdir()} == {
        *("bundle", "model.keras", "images.npy", "curve.png", "attention.png", "predictions.png")
    }
    images = np.load(out / "images.npy")
    assert images.shape == (8, 8, 8, 1)
    assert images.max() > 200  # pixels as they come
    assert [line.split()[1] for line in process.stdout.splitlines() if line.startswith("  keras-transformer")] == [
        *("inspect", "verify", "run")
    ]


def test_what_it_says_to_type_next_works(finished):
    root, process = finished
    line = next(line for line in process.stdout.splitlines() if line.startswith("  keras-transformer run"))
    answer = keras_transformer(*line.split()[1:], "--output", "answer.npz", cwd=root)
    assert answer.returncode == 0, answer.stderr
    ((name, probabilities),) = np.load(root / "answer.npz").items()
    assert name == "probabilities"
    assert probabilities.shape == (8, 2)
    np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    "words, status, message",
    [
        (["--data-dir", "nowhere"], 1, "no such folder or zip: 'nowhere'"),
        (["--epochs", "0"], 2, "not a positive integer"),
        (["--dataset", "imagenet"], 2, "invalid choice"),
        (["--dataset", "mnist", "--data-dir", "bars"], 2, "not allowed with"),
        (["--out", "file"], 1, "--out 'file' is a file"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path, words, status, message):
    (tmp_path / "file").write_text("")
    process = keras_transformer("demo", *words, cwd=tmp_path)
    assert process.returncode == status
    assert message in process.stderr
    assert len(process.stderr.splitlines()) == 1
    assert process.stdout == ""


def test_unfit_images_are_named(tmp_path):
    draw_bars(tmp_path / "bars", 2, seed=0)
    (tmp_path / "bars" / "lying" / "broken.png").write_bytes(b"no picture")
    process = keras_transformer("demo", "--data-dir", "bars", cwd=tmp_path)
    assert process.returncode == 1
    assert "lying/broken.png" in process.stderr.splitlines()[-1]
    assert "Traceback" not in process.stderr
    assert not (tmp_path / "keras_transformer_demo").exists()


@pytest.mark.parametrize(
    "height, width, patch", [(8, 8, 2), (28, 28, 4), (32, 32, 4), (64, 64, 8), (32, 64, 8), (9, 9, 3), (30, 50, 5)]
)
def test_patch_size(height, width, patch):
    assert demo._patch_size(height, width) == patch


def test_images_that_do_not_divide():
    with pytest.raises(ExportError, match="31x37 pixels do not divide"):
        demo._patch_size(37, 31)
