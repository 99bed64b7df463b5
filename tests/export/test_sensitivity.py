"""`keras-transformer sensitivity` ranks the weight with the largest quantization loss first."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from keras_transformer.export import FullInt8, QuantizationError
from keras_transformer.export.commands import main as cli
from keras_transformer.export.compression import layer_sensitivity
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.verification.quantized.evaluation import Evaluation

pytestmark = pytest.mark.slow

FRAGILE, EXACT = "fragile/kernel", "exact/kernel"
# One layer that is exact in 8 bits, and one with outliers (at inputs of zero) that round all other weights to zero.
SCRIPT = """
import sys, keras, numpy as np
from keras_transformer.export import export
x = keras.Input((64,), name="x")
exact, fragile = (keras.layers.Dense(size, use_bias=False, name=name) for size, name in ((64, "exact"), (32, "fragile")))
model = keras.Model(x, fragile(exact(x)))
kernel = np.random.default_rng(0).normal(0, 0.1, (64, 32))
kernel[32:] = 100
exact.kernel.assign(np.eye(64))
fragile.kernel.assign(kernel)
export(model, sys.argv[1] + "/bundle", ["onnx"])
export(model, sys.argv[1] + "/small", ["onnx"], quantize="fp16")
np.savez(sys.argv[1] + "/test.npz", x=np.eye(64)[:32].astype("float32"), labels=kernel[:32].argmax(-1))
np.savez(sys.argv[1] + "/unlabeled.npz", x=np.eye(64)[:32].astype("float32"))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sensitivity")
    environment = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def sensitivity(folder, *words):
    return cli.main(["sensitivity", str(folder / "bundle"), "--evaluate", str(folder / "test.npz"), *map(str, words)])


def test_the_weight_that_costs_most_comes_first(folder, tmp_path, capsys):
    before = {path: path.read_bytes() for path in (folder / "bundle").iterdir()}
    assert sensitivity(folder, "--json", tmp_path / "figures.json") == 0
    labels = np.load(folder / "test.npz")["labels"]
    guessed = float(np.mean(labels == 0))  # All logits are equal: argmax returns the first class.
    record = json.loads((tmp_path / "figures.json").read_text())
    assert (record["quantize"], record["bundle"]) == ("int8", str(folder / "bundle"))
    whole, first, second = record["rows"]
    assert [row["weight"] for row in record["rows"]] == ["", FRAGILE, EXACT]
    assert [row["score"] for row in record["rows"]] == [guessed, 1.0, guessed]
    assert [row["agreement"] for row in record["rows"]] == [guessed, 1.0, guessed]
    assert {row["score_float"] for row in record["rows"]} == {1.0}
    # A float weight takes four bytes instead of one; scales and nodes are small.
    assert first["size"] - whole["size"] == pytest.approx(3 * 64 * 32, rel=0.3)
    assert second["size"] - whole["size"] == pytest.approx(3 * 64 * 64, rel=0.3)
    shown = capsys.readouterr()
    assert "score in float 1.0000" in shown.out
    line = next(line for line in shown.out.splitlines() if line.startswith(FRAGILE))
    assert line.split()[1:3] == ["1.0000", "1.0000"]
    assert line.endswith(f"{1 - guessed:+.4f}")
    assert [line.split(":")[0] for line in shown.err.splitlines()] == ["all quantized", EXACT, FRAGILE]
    assert {path: path.read_bytes() for path in (folder / "bundle").iterdir()} == before


def test_what_is_kept_anyway_and_how_much_is_shown(folder, capsys):
    assert sensitivity(folder, "--keep-float", FRAGILE, "--top", 1, "--quantize", "weight_int8") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{folder / 'bundle'}, weight_int8, score in float 1.0000"
    rows = [line for line in lines if line.startswith(("all", EXACT, FRAGILE))]
    assert len(rows) == 2
    assert rows[0].split()[2:4] == ["1.0000", "1.0000"]


def test_without_labels_it_ranks_by_agreement(folder, capsys):
    assert cli.main(["sensitivity", str(folder / "bundle"), "--evaluate", str(folder / "unlabeled.npz")]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith(FRAGILE)).split()
    assert row[1:3] == ["1.0000", "-"]
    assert float(row[-1]) > 0.5
    assert lines[-1] == "gain: in agreement, by leaving one weight in float"


@pytest.mark.parametrize(
    ("words", "message", "status"),
    [
        (["bundle"], "arguments are required: --evaluate", 2),
        (["small", "--evaluate", "test.npz"], "no float ONNX files", 1),
        (["bundle", "--evaluate", "bundle/manifest.json"], "not an .npz file of arrays", 1),
        (["bundle", "--evaluate", "test.npz", "--quantize", "int7"], "unknown quantization 'int7'", 1),
        (["bundle", "--evaluate", "test.npz", "--top", "0"], "'0' is not a positive integer", 2),
        (["bundle", "--evaluate", "test.npz", "--json", "none/figures"], "No such file or directory", 1),
        (["bundle", "--evaluate", "test.npz", "--keep-float", "absent"], "'absent' matches none", 1),
    ],
)
def test_one_line_for_what_is_wrong(folder, words, message, status, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert cli.main(["sensitivity", *words]) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err.splitlines()[-1]


def test_a_language_model_is_measured_by_a_score(monkeypatch):
    artifact = ArtifactRecord({}, size=0)
    manifest = Manifest({}, {"onnx": artifact}, tolerance=1e-5, generation={"vocabulary_size": 8})
    monkeypatch.setattr(layer_sensitivity, "read_manifest", lambda bundle: manifest)
    with pytest.raises(QuantizationError, match="a language model is measured by a score"):
        layer_sensitivity.sensitivity("bundle", "int8", Evaluation([np.eye(2)]))


def test_one_weight_in_float_among_operators_of_integers(folder):
    data, labels = (np.load(folder / "test.npz")[name] for name in ("x", "labels"))
    evaluation = Evaluation([data], [labels])
    whole, first, second = layer_sensitivity.sensitivity(folder / "bundle", FullInt8(data), evaluation)
    assert [each.weight for each in (whole, first, second)] == ["", FRAGILE, EXACT]
    assert [each.score for each in (first, second)] == [1.0, whole.score]
    assert whole.score < 0.1
