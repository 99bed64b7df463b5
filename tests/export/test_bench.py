"""`keras-transformer bench`: what it measures and how, without asserting speed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from keras_transformer.export import ExportError, InvalidBundleError, UnknownFormatError
from keras_transformer.export.commands import main as cli
from keras_transformer.export.reporting import bench, bench_worker
from keras_transformer.export.reporting.bench import bench_bundle


def test_every_signature_in_the_sizes_asked_for(exported):
    found = bench_bundle(exported.bundle("two_signatures"), ["tflite", "onnx"], {"batch": 3, "length": 7}, rounds=2)
    assert found.calls == 10
    assert [(row.backend, row.signature, row.sizes) for row in found.rows] == [
        (backend, signature, sizes)
        for backend in ("tflite", "onnx")
        for signature, sizes in (("prefill", {"batch": 3, "length": 7}), ("decode_step", {"batch": 3}))
    ]
    for row in found.rows:
        assert 0 < row.p50 <= row.p90 <= row.p99
        assert row.per_second == pytest.approx(3 / row.p50 * 1e3)
        assert row.unit == "examples"
        assert row.load_seconds > 0
        assert 5e6 < row.peak_memory < 2e9
    manifest = json.loads((exported.bundle("two_signatures") / "manifest.json").read_text())
    assert found.rows[0].size == manifest["files"]["model.tflite"]["bytes"]
    onnx = [name for name in manifest["files"] if name.startswith("model.") and name != "model.tflite"]
    assert found.rows[2].size == sum(manifest["files"][name]["bytes"] for name in onnx)
    table = str(found).splitlines()
    assert table[-5].split()[:4] == ["tflite", "prefill", "batch=3,", "length=7"]


def test_a_language_model_by_its_tokens(language):
    rows = bench_bundle(language.bundle("gpt"), ["tflite"], {"batch": 2, "length": 6}, rounds=1).rows
    assert [(row.signature, row.unit) for row in rows] == [("prefill", "tokens"), ("decode", "tokens")]
    assert rows[0].sizes == {"batch": 2, "length": 6}
    assert rows[0].per_second == pytest.approx(12 / rows[0].p50 * 1e3)
    assert rows[1].per_second == pytest.approx(2 / rows[1].p50 * 1e3)
    assert rows[1].sizes == {"batch": 2, "cache_length": 24}


@pytest.mark.parametrize("name", ["gpt", "translator"])
def test_the_steps_that_are_timed(language, name, monkeypatch):
    # The timed steps must read the cache at increasing indices.
    from keras_transformer.export.onnx.generation_steps import OnnxSteps

    seen, call = [], OnnxSteps._call

    def spy(self, signature, arrays, cache):
        seen.append((signature, *(array.tolist() for key, array in arrays.items() if "ids" not in key)))
        return call(self, signature, arrays, cache)

    monkeypatch.setattr(OnnxSteps, "_call", spy)
    cases, seconds = bench_worker.open_cases(str(language.bundle(name)), "onnx", {"batch": 1, "length": 5}, 1)
    prefill, decode = cases
    read = 1 if name == "translator" else 5
    assert seen[-1] == ("prefill", [read])
    seen.clear()
    assert len(decode.seconds(3)) == 3
    assert seen == [("decode", [read + step]) for step in range(3)]
    seen.clear()
    prefill.seconds(1)
    assert [each[0] for each in seen] == (["encode", "prefill"] if name == "translator" else ["prefill"])
    assert seconds > 0


def test_runtimes_take_turns(exported, monkeypatch):
    order, turn = [], bench._Worker.run_round
    monkeypatch.setattr(bench._Worker, "run_round", lambda self: order.append(self.backend) or turn(self))
    bench_bundle(exported.bundle("mlp"), ["onnx", "tflite"], rounds=3)
    assert order == ["onnx", "tflite", "tflite", "onnx", "onnx", "tflite"]


def test_percentiles_are_of_all_turns():
    worker = bench._Worker("bundle", "onnx", {}, None)
    worker._loaded = {"cases": [{"name": "serve", "sizes": {}, "count": 4, "unit": "examples"}], "seconds": 0.5}
    worker._seconds = [[index / 1000 for index in range(1, 102)]]
    worker._ask = lambda question: {"peak_memory": 7}
    (row,) = worker.rows(11)
    assert np.allclose((row.p50, row.p90, row.p99), (51, 91, 100))
    assert row.per_second == pytest.approx(4 / 0.051)
    assert (row.load_seconds, row.peak_memory, row.size) == (0.5, 7, 11)


def test_what_cannot_be_measured(exported, tmp_path):
    mlp = exported.bundle("mlp")
    with pytest.raises(UnknownFormatError, match="'coreml'; valid: saved_model, tflite, onnx"):
        bench_bundle(mlp, ["coreml"])
    with pytest.raises(ExportError, match="no onnx artifact; it has tflite"):
        bench_bundle(exported.bundle("only_tflite").parent / "only", ["onnx"])
    with pytest.raises(ExportError, match="input 'width': expected one of the axes batch"):
        bench_bundle(mlp, ["onnx"], {"width": 3})
    with pytest.raises(ExportError, match="rounds must be a positive integer"):
        bench_bundle(mlp, rounds=0)
    with pytest.raises(InvalidBundleError, match="no such bundle"):
        bench_bundle(tmp_path / "nowhere")


def test_a_runtime_that_dies_is_named(exported, monkeypatch):
    monkeypatch.setattr(bench.sys, "executable", "/bin/false")
    with pytest.raises(ExportError, match="onnx: the process ended with status 1"):
        bench_bundle(exported.bundle("mlp"), ["onnx"])


def test_the_command(exported, tmp_path, capsys):
    mlp, path = str(exported.bundle("mlp")), tmp_path / "figures.json"
    words = ["bench", mlp, "--backend", "onnx", "--batch", "4", "--rounds", "1", "--threads", "1", "--json", str(path)]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    (row,) = json.loads(path.read_text())["rows"]
    assert row["sizes"] == {"batch": 4}
    assert f"{row['p50']:.2f}" in shown
    for words, message, status in (
        (["--size", "batch"], "'batch' is not AXIS=N", 2),
        (["--rounds", "0"], "'0' is not a positive integer", 2),
        (["--size", "width=3"], "an unknown axis", 1),
        (["--json", str(tmp_path / "none" / "x")], "No such file or directory", 1),
    ):
        assert cli.main(["bench", mlp, "--backend", "onnx", *words]) == status
        captured = capsys.readouterr().err
        assert message in captured
        assert captured.count("\n") == 1


def test_the_worker_imports_only_its_runtime(exported):
    script = (
        "import sys\nfrom keras_transformer.export.reporting import bench_worker\n"
        f"bench_worker.open_cases({str(exported.bundle('mlp'))!r}, 'onnx', {{}}, 1)\n"
        "print(sorted({'tensorflow', 'keras', 'onnx', 'ai_edge_litert'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")
