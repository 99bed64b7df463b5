"""The command line: output, exit status, and one line per error."""

import contextlib
import gc
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest

from keras_transformer.export.commands import importing
from keras_transformer.export.commands import main as cli
from keras_transformer.export.errors import MissingLibraryError

HERE = pathlib.Path(__file__).parent


def command(*words, **environment):
    """Runs the command line in a separate process."""
    return subprocess.run(
        [sys.executable, "-m", "keras_transformer.export.commands.main", *map(str, words)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )


def fails(capsys, *words, status=1):
    """Runs a failing command in this process; returns its single error line."""
    assert cli.main([str(word) for word in words]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("keras-transformer")
    return captured.err


@pytest.fixture(scope="module")
def keras_file(tmp_path_factory):
    """The encoder, saved as a user would."""
    path = tmp_path_factory.mktemp("model") / "encoder.keras"
    script = f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
    script += f"import small_models; small_models.encoder().save({str(path)!r})"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    return path


@pytest.mark.slow
def test_export_verify_inspect_and_run(keras_file, tmp_path, capsys):
    bundle = tmp_path / "bundle"
    done = command("export", keras_file, "--out", bundle, "--formats", "tflite,onnx", KERAS_BACKEND="jax")
    assert done.returncode == 0, done.stderr
    progress = done.stderr.splitlines()
    assert progress[0] == f"loading {keras_file}"
    assert [line for line in progress if line.startswith("verified onnx: ")]
    steps = [line for line in progress[1:] if not line.startswith("verified ")]
    assert [line.split("] ")[0] for line in steps] == [f"[{number}/5" for number in range(1, 6)], "noise on stderr"
    assert [line.split()[0] for line in done.stdout.splitlines()[2:4]] == ["tflite", "onnx"]

    assert cli.main(["verify", str(bundle)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "proven in 2 runtimes: tflite, onnx"
    assert printed.err.splitlines() == ["[1/2] verifying tflite", "[2/2] verifying onnx"]
    with pytest.MonkeyPatch.context() as patch:
        found = importlib.util.find_spec
        patch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else found(name))
        assert cli.main(["verify", str(bundle)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "proven in one runtime: tflite"
    assert printed.err.splitlines()[0] == "onnx is not run: onnxruntime is not installed"

    assert cli.main(["inspect", str(bundle)]) == 0
    shown = capsys.readouterr().out
    assert "token_ids: int32 (batch, length)" in shown
    assert "sequence: float32 (batch, length, 32)" in shown
    assert "FULLY_CONNECTED" in shown
    assert "tensorflow 2." in shown

    np.savez(tmp_path / "in.npz", token_ids=np.ones((2, 3), int), padding_mask=np.ones((2, 3), bool))
    out = tmp_path / "out.json"
    assert cli.main(["run", str(bundle), "--input", str(tmp_path / "in.npz"), "--output", str(out)]) == 0
    written = json.loads(out.read_text())
    assert np.shape(written["sequence"]) == (2, 3, 32)
    (tmp_path / "in.json").write_text(json.dumps({"token_ids": [[1, 1, 1]], "padding_mask": [[True, True, True]]}))
    tail = ["--backend", "tflite", "--output", str(tmp_path / "out.npz")]
    assert cli.main(["run", str(bundle), "--input", str(tmp_path / "in.json"), *tail]) == 0
    with np.load(tmp_path / "out.npz") as arrays:
        np.testing.assert_allclose(arrays["pooled"][0], written["pooled"][0], atol=1e-5)


def test_run_prints_and_reads_a_single_array(exported, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.zeros((1, 8)))
    assert cli.main(["run", str(exported.bundle("mlp")), "--input", str(tmp_path / "x.npy")]) == 0
    assert capsys.readouterr().out.startswith("probabilities float32 (1, 3)\n[[")


def test_wrong_input_files(exported, tmp_path, capsys):
    bundle = exported.bundle("encoder")
    np.save(tmp_path / "x.npy", np.zeros((1, 8)))
    assert "(unnamed)" in fails(capsys, "run", bundle, "--input", tmp_path / "x.npy")
    np.savez(tmp_path / "shape.npz", token_ids=np.ones(3, int), padding_mask=np.ones((1, 3), bool))
    line = fails(capsys, "run", bundle, "--input", tmp_path / "shape.npz")
    assert "input 'token_ids': expected int32 (batch, length), got int64 (3,)" in line
    np.savez(tmp_path / "dtype.npz", token_ids=np.ones((1, 3)), padding_mask=np.ones((1, 3), bool))
    assert "got dtype float64" in fails(capsys, "run", bundle, "--input", tmp_path / "dtype.npz")
    (tmp_path / "bad.npz").write_text("no zip")
    assert "not a readable .npz file" in fails(capsys, "run", bundle, "--input", tmp_path / "bad.npz")
    (tmp_path / "bad.json").write_text("{")
    assert "not a readable .json file" in fails(capsys, "run", bundle, "--input", tmp_path / "bad.json")
    assert "no such file" in fails(capsys, "run", bundle, "--input", tmp_path / "none.npy")
    assert "must end in .npz, .npy, .json, or an image" in fails(capsys, "run", bundle, "--input", tmp_path / "x.txt")
    words = ("run", bundle, "--input", tmp_path / "x.npy", "--output", "x.csv")
    assert "must end in .npz or .json" in fails(capsys, *words)
    words = ("run", bundle, "--input", tmp_path / "x.npy", "--backend", "coreml")
    assert "unknown format 'coreml'; valid: saved_model, tflite, onnx" in fails(capsys, *words)


def test_wrong_models(tmp_path, capsys):
    out = ("--out", tmp_path / "bundle")
    assert "no such file" in fails(capsys, "export", tmp_path / "none.keras", *out)
    (tmp_path / "text.keras").write_text("hello")
    assert "is not a Keras file" in fails(capsys, "export", tmp_path / "text.keras", *out)
    with zipfile.ZipFile(tmp_path / "zip.keras", "w") as file:
        file.writestr("a.txt", "hello")
    assert "is not a Keras file" in fails(capsys, "export", tmp_path / "zip.keras", *out)
    assert "contains no config.json" in fails(capsys, "export", tmp_path, *out)
    line = fails(capsys, "export", tmp_path / "text.keras", *out, "--formats", "onnx", "coreml")
    assert "unknown format 'coreml'" in line
    assert not (tmp_path / "bundle").exists()


@pytest.mark.slow
def test_a_directory_that_is_no_bundle(keras_file, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    line = fails(capsys, "export", keras_file, "--out", tmp_path)
    assert "'mine.txt', which is not part of a bundle" in line
    assert "contains no manifest.json" in fails(capsys, "verify", tmp_path)
    assert "no such bundle" in fails(capsys, "inspect", tmp_path / "nowhere")


@pytest.mark.slow
def test_a_broken_keras_file_is_one_line(tmp_path):
    with zipfile.ZipFile(tmp_path / "broken.keras", "w") as file:
        file.writestr("config.json", '{"module": "nowhere", "class_name": "Strange", "config": {}}')
        file.writestr("metadata.json", "{}")
        file.writestr("model.weights.h5", "")
    done = command("export", tmp_path / "broken.keras", "--out", tmp_path / "bundle")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("keras-transformer: error: ")
    assert "cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("number, delay", [(signal.SIGINT, 0.0), (signal.SIGTERM, 0.3), (signal.SIGINT, 1.0)])
def test_interrupted_export_leaves_the_old_bundle(exported, keras_file, tmp_path, number, delay):
    import shutil

    shutil.copytree(exported.bundle("mlp"), tmp_path / "bundle")
    before = (tmp_path / "bundle" / "manifest.json").read_text()
    words = ["export", str(keras_file), "--out", str(tmp_path / "bundle")]
    with subprocess.Popen(
        [sys.executable, "-m", "keras_transformer.export.commands.main", *words], stderr=subprocess.PIPE, text=True
    ) as process:
        awaited = "loading" if delay else "writing"
        while awaited not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(delay)
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == 128 + number
    assert rest.splitlines()[-1] == "keras-transformer: error: interrupted; partial output was removed"
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert (tmp_path / "bundle" / "manifest.json").read_text() == before


def test_without_a_command_the_help_is_printed(capsys):
    assert cli.main([]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("usage: keras-transformer")
    assert printed.err == ""


def test_wrong_usage_is_one_line(capsys):
    assert "--out" in fails(capsys, "export", "model.keras", status=2)
    assert "invalid choice: 'exprt'; did you mean 'export'?" in fails(capsys, "exprt", status=2)
    line = fails(capsys, "verify", "bundle", "--backand", "onnx", status=2)
    assert "unrecognized arguments: --backand onnx; did you mean '--backend'?" in line
    line = fails(capsys, "generate", "bundle", "a", "--sampler", "beem", status=2)
    assert "invalid choice: 'beem'; did you mean 'beam'?" in line
    assert "unknown format 'tflit'; valid:" in fails(capsys, "export", "none.keras", "--out", "b", "--formats", "tflit")
    assert "did you mean 'adamw'?" in fails(capsys, "plan", "gpt2:small", "--optimizer", "adamww")
    assert "no section 'mechanism'" in (line := fails(capsys, "catalog", "mechanism"))
    assert "; did you mean 'mechanisms'? (keras-transformer explain exporterror)" in line


# Words of a command with a mistake, and what is answered.
MISTAKES = [
    ("plan lama:3-8B", "unknown model 'lama'; did you mean 'llama'?"),
    ("plan llama3-8B", "such as llama:3-8B; did you mean 'llama:3-8B'?"),
    ("plan gpt2:smal", "gpt2 has no size 'smal'; valid: small, medium, large, xl; did you mean 'small'?"),
    ("plan models/none.json", "no such file or folder: 'models/none.json'"),
    ("plan gpt2:small --device h1000", "unknown device 'h1000'; valid: here, "),
    ("plan gpt2:small --optimizer adamww", "did you mean 'adamw'?"),
    ("plan gpt2:small --dtype bfloat17", "did you mean 'bfloat16'?"),
    ("plan gpt2:small --efficiency 2", "efficiency must be in (0, 1]: 2.0"),
    ("catalog mechanism", "no section 'mechanism'; valid: models, "),
    ("export modl.keras --out b", "no such file: 'modl.keras'; did you mean 'model.keras'?"),
    ("export model.keras --out b --formats tflit", "did you mean 'tflite'?"),
    ("compress modl.keras --out b --data x.npz --budget 1MB", "no such file: 'modl.keras'"),
    ("verify bundel", "no such bundle: 'bundel'; did you mean 'bundle'?"),
    ("bench none", "no such bundle: 'none'"),
    ("inspect none", "no such bundle: 'none'"),
    ("run none --input x.npy --backend onx", "unknown format 'onx'"),
    ("quantize none --out b --quantize int9", "did you mean 'int8'?"),
    ("generate none text", "no such bundle: 'none'"),
]


def test_mistakes_are_named_without_tensorflow(tmp_path):
    (tmp_path / "model.keras").touch()
    (tmp_path / "bundle").mkdir()
    script = "import json, sys\nfrom keras_transformer.export.commands.main import main\n"
    script += f"statuses = [main(words.split()) for words, _ in {MISTAKES!r}]\n"
    script += "print(json.dumps([statuses, sorted({'tensorflow', 'keras', 'jax', 'onnx'} & set(sys.modules))]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert json.loads(done.stdout) == [[1] * len(MISTAKES), []]
    for (words, message), line in zip(MISTAKES, done.stderr.splitlines(), strict=True):
        assert message in line, words


@pytest.mark.parametrize(
    "words",
    [
        ("catalog",),
        ("export", "model.keras", "--out", "bundle"),
        ("convert", "folder", "x.keras"),
        ("plan", "gpt2:small"),
    ],
)
def test_commands_that_need_keras_name_it(words, tmp_path):
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as file:
        file.writestr("config.json", "{}")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text('{"model_type": "bert"}')
    script = (
        "import sys\nfor name in ('keras', 'tensorflow'):\n    sys.modules[name] = None\n"
        f"from keras_transformer.export.commands.main import main\nsys.exit(main({list(words)!r}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if not line.startswith("loading "))
    assert line.startswith("keras-transformer: error: ")
    assert line.endswith(" needs keras: pip install keras (keras-transformer explain missinglibraryerror)")


def test_evaluation_files_of_a_wrong_kind(tmp_path, capsys):
    bundle = tmp_path / "bundle"
    np.save(tmp_path / "images.npy", np.zeros((4, 8)))
    line = fails(capsys, "sensitivity", bundle, "--evaluate", tmp_path / "images.npy")
    assert "images.npy' contains one unnamed array: an .npz file names an array for each input" in line
    (tmp_path / "text.npz").write_text("no zip")
    assert "is not an .npz file of arrays" in fails(capsys, "sensitivity", bundle, "--evaluate", tmp_path / "text.npz")
    assert "no such file" in fails(capsys, "sensitivity", bundle, "--evaluate", tmp_path / "none.npz")


def test_explain_prints_what_the_page_says(capsys):
    page = (pathlib.Path(__file__).parents[2] / "docs" / "errors.md").read_text()
    assert cli.main(["explain"]) == 0
    entries = capsys.readouterr().out.split()
    assert "a-complex-output" in entries
    for entry in (*entries, "ParityError"):
        assert cli.main(["explain", entry]) == 0
        printed = capsys.readouterr().out
        assert printed.lower().startswith(f"### {entry.lower().replace('-', ' ')}")
        assert printed in page
    assert "did you mean 'parityerror'?" in fails(capsys, "explain", "ParityErrors")


def test_the_command_at_the_end_of_an_error_explains_it(tmp_path, capsys):
    line = fails(capsys, "export", tmp_path / "none.keras", "--out", tmp_path / "bundle")
    words = re.search(r"\((keras-transformer explain \S+)\)$", line)[1].split()[1:]
    assert cli.main(words) == 0
    assert "The model cannot be exported" in capsys.readouterr().out


def test_help_has_examples_and_version_is_short(capsys):
    for words in (["--help"], ["export", "--help"], ["run", "--help"], ["verify", "--help"], ["inspect", "--help"]):
        assert cli.main(words) == 0
        assert "examples:\n  keras-transformer " in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("keras-transformer ")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_examples(name, capsys):
    assert cli.main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert cli.COMMANDS[name][1:8] in shown
    assert f"examples:\n  keras-transformer {name} " in shown


def test_every_file_of_a_command_is_listed():
    files = pathlib.Path(cli.__file__).parent.rglob("*.py")
    commands = {file.stem.replace("_", "-") for file in files if "\nEXAMPLES = " in file.read_text()}
    assert commands == set(cli.COMMANDS)


@pytest.mark.parametrize("words, command", [(["--help"], ["main"]), (["plan", "--help"], ["main", "plan"])])
def test_help_imports_nothing_heavy_and_one_command_at_most(words, command):
    script = (
        f"import sys\nfrom keras_transformer.export.commands.main import main\nmain({words!r})\n"
        "print(sorted({'tensorflow', 'keras', 'numpy', 'onnx'} & set(sys.modules)))\n"
        "package = 'keras_transformer.export.commands.'\n"
        "print([name.removeprefix(package) for name in sys.modules if name.startswith(package)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-2:] == ["[]", str(command)]


def test_tensorflow_is_imported_without_what_is_not_needed(monkeypatch):
    monkeypatch.setattr(importing, "_UNUSED", ("colorsys",))
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with importing.quick_imports():
        assert not gc.isenabled()
        with pytest.raises(ImportError):
            importlib.import_module("colorsys")
    assert importlib.import_module("colorsys").rgb_to_hsv(1, 1, 1) == (0.0, 0.0, 1)
    assert gc.isenabled()


def test_every_public_name_loads():
    import keras_transformer.export as package

    for name in package.__all__:
        with contextlib.suppress(MissingLibraryError):  # An extra is not installed.
            assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute|No .* attribute nothing"):
        package.nothing  # noqa: B018


@pytest.mark.slow
def test_commands_that_describe_models_run_whatever_the_backend_of_the_user():
    done = command("catalog", "scorings", KERAS_BACKEND="jax")
    assert done.returncode == 0, done.stderr
    assert "scaled_dot" in done.stdout


def test_a_port_that_does_not_exist(capsys):
    for words in (("serve", "b", "--port", "99999"), ("serve-text", "b", "--port", "-1"), ("view", "b", "--port", "x")):
        assert "is not a port from 0 to 65535" in fails(capsys, *words, status=2)


def test_the_exit_statuses_are_in_the_help(capsys):
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    assert "exit status:\n  0  done\n  1  an error" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_its_options(shell, capsys):
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in cli.COMMANDS)
    assert "dry-run" in script
    assert "calibrate" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(tmp_path, capsys):
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    ask = 'COMP_WORDS=({}) COMP_CWORD={}; _keras_transformer; echo "${{COMPREPLY[*]}}"'
    for words, at, expected in (
        ("keras-transformer insp", 1, "inspect"),
        ("keras-transformer run b --te", 3, "--text"),
        ("keras-transformer run ph", 2, ""),
    ):
        done = subprocess.run(
            ["bash", "-c", f"{script}\n{ask.format(words, at)}"], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected, words


def test_a_repository_is_pointed_to_convert(tmp_path, capsys):
    line = fails(capsys, "export", "owner/name", "--out", tmp_path / "b")
    assert (
        "no such file: 'owner/name'; if it is a repository of Hugging Face: keras-transformer convert owner/name"
        in line
    )
    assert "convert" not in fails(capsys, "export", "owner/name.keras", "--out", tmp_path / "b")


def test_a_name_that_is_not_near_is_not_suggested(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.npy").write_text("")
    line = fails(capsys, "export", "none.keras", "--out", "b", "--import", "nofile.py")
    assert "--import: no such file: 'nofile.py' (" in line


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    """The .keras file of a convolution whose input has no name."""
    import keras

    path = tmp_path_factory.mktemp("small") / "small.keras"
    keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3), keras.layers.GlobalMaxPooling2D()]).save(path)
    return path


def test_a_damaged_keras_file_is_called_damaged(small_file, tmp_path, capsys):
    content = small_file.read_bytes()
    (tmp_path / "half.keras").write_bytes(content[: len(content) // 2])
    line = fails(capsys, "export", tmp_path / "half.keras", "--out", tmp_path / "b")
    assert "half.keras' is damaged" in line
    assert "its end is missing): copy it again, or save it again" in line
    with zipfile.ZipFile(small_file) as archive:
        start = archive.getinfo("model.weights.h5").header_offset + 100
    changed = content[:start] + bytes(64) + content[start + 64 :]
    (tmp_path / "changed.keras").write_bytes(changed)
    assert cli.main(["export", str(tmp_path / "changed.keras"), "--out", str(tmp_path / "b")]) == 1
    assert "changed.keras' is damaged" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


DATA = {
    "wrong.npz": ({"images": (4, 8, 8, 3)}, "no input is named 'images': the input is named 'input'"),
    "shape.npz": ({"input": (4, 9, 8, 3)}, "input 'input': expected float32 (batch, 8, 8, 3)"),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("option", ["--evaluate", "--calibrate"])
def test_data_files_are_checked_before_anything_is_written(small_file, tmp_path, capsys, name, option):
    shapes, expected = DATA[name]
    np.savez(tmp_path / name, labels=np.zeros(4, int), **{each: np.ones(shape) for each, shape in shapes.items()})
    mode = "full_int8" if option == "--calibrate" else "int8"
    words = ["export", small_file, "--out", tmp_path / "b", "--quantize", mode, option, tmp_path / name]
    assert cli.main([str(word) for word in words]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert expected.partition(":")[0] in lines[-1] or "a batch has ['images']" in lines[-1], lines
    assert lines[:-1] == [f"loading {small_file}"], "work was done before"


def test_a_dry_run_says_what_would_be_written(small_file, tmp_path, capsys):
    np.savez(
        tmp_path / "data.npz", keras_tensor_3=np.random.default_rng(0).normal(size=(4, 8, 8, 3)), labels=np.zeros(4)
    )
    words = ["--quantize", "float32,full_int8", "--calibrate", tmp_path / "data.npz", "--formats", "onnx"]
    assert cli.main([*map(str, ["export", small_file, "--out", tmp_path / "b", "--dry-run", *words])]) == 0
    shown = capsys.readouterr().out
    assert "input  input: float32 (batch, 8, 8, 3)" in shown
    assert shown.splitlines()[-1] == "nothing was written: onnx in float32, onnx in full_int8 would be"
    assert not (tmp_path / "b").exists()
    words = ["--quantize", "int8", "--formats", "onnx", "--json"]
    assert cli.main([*map(str, ["export", small_file, "--out", tmp_path / "b", "--dry-run", *words])]) == 1
    (planned,) = json.loads(capsys.readouterr().out)["files"]
    assert planned["quantized"] == 0
    assert "no weight has 2,048 numbers" in planned["refused"]


def test_inspect_of_a_keras_file(small_file, capsys):
    assert cli.main(["inspect", str(small_file)]) == 0
    shown = capsys.readouterr().out
    assert ": float32 (?, 8, 8, 3)" in shown
    assert "2 layers: Conv2D 1, GlobalMaxPooling2D 1" in shown
    assert "no weight is quantized" in shown


def test_inspect_of_what_is_no_file_of_a_model(tmp_path, capsys):
    (tmp_path / "x.txt").write_text("x")
    assert "is neither a bundle nor a file of .tflite, .onnx, .keras" in fails(capsys, "inspect", tmp_path / "x.txt")
    for name in ("x.tflite", "x.onnx", "x.keras"):
        (tmp_path / name).write_text("hello")
        assert "or damaged" in fails(capsys, "inspect", tmp_path / name)


def test_inspect_of_files_and_json(exported, capsys):
    bundle = exported.bundle("encoder")
    for format in ("tflite", "onnx"):
        (path,) = bundle.glob(f"*.{format}")
        assert cli.main(["inspect", str(path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        (signature,) = found["signatures"].values()
        assert signature["inputs"]["token_ids"] == "int32 (?, ?)" or "int32" in signature["inputs"]["token_ids"].lower()
        assert found["weights"]["float32"]["bytes"] > 1000
        assert found["operations"]
    assert cli.main(["inspect", str(bundle), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["artifacts"]["onnx"]["quantization"] is None
    assert {each["name"] for each in found["signatures"]["serve"]["inputs"]} == {"token_ids", "padding_mask"}


def test_run_takes_text_only_with_a_tokenizer(exported, capsys):
    line = fails(capsys, "run", exported.bundle("mlp"), "--text", "hello")
    assert "has no tokenizer and takes no text: pass --input FILE of" in line


def test_images_as_inputs(tmp_path, capsys):
    from PIL import Image

    from keras_transformer.export import ArraySpec
    from keras_transformer.export.commands.running.run_inputs import read_image

    pixels = np.zeros((4, 6, 3), "uint8")
    pixels[..., 0] = 255
    Image.fromarray(pixels).save(tmp_path / "red.png")
    spec = ArraySpec("image", "float32", (None, 2, 3, 3), ("batch", None, None, None))
    plain = read_image(str(tmp_path / "red.png"), spec, {})
    assert plain.shape == (1, 2, 3, 3)
    assert plain.dtype == "float32"
    np.testing.assert_array_equal(plain[0, 0, 0], [255, 0, 0])
    record = {"inputs": {"image": {"range": [0, 1], "mean": [0.5, 0.5, 0.0], "std": 0.5}}}
    np.testing.assert_allclose(read_image(str(tmp_path / "red.png"), spec, record)[0, 0, 0], [1, -1, 0])
    assert "red.png: 6 x 4 pixels as 3 x 2" in capsys.readouterr().err


def test_verify_prints_json(exported, capsys):
    assert cli.main(["verify", str(exported.bundle("mlp")), "--backend", "onnx", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["artifacts"]["onnx"]["parity"][0]["ratio"] < 1e-4


@pytest.mark.parametrize(
    "words, message",
    [
        ("quantize b --out q --quantize int8_static", "--quantize int8_static needs --calibrate FILE: an .npz file"),
        ("run model.keras --input x.npy", "keras-transformer export model.keras --out bundle writes one"),
        ("convert model.keras folder --like nothing", "--like 'nothing' is no folder of a checkpoint"),
        ("convert nothing out.keras", "no such folder: 'nothing'; a repository of Hugging Face is named owner/name"),
        ("inspect model.keras --operators", "--operators is for a bundle, or an .onnx file"),
    ],
)
def test_the_remedy_is_one_of_the_command_line(small_file, tmp_path, capsys, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    shutil.copy(small_file, "model.keras")
    np.save("x.npy", np.zeros((1, 8, 8, 3)))
    assert message in fails(capsys, *words.split())


def test_the_bundle_of_a_language_model_is_not_run(language, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.zeros((1, 3), int))
    line = fails(capsys, "run", language.bundle("gpt"), "--input", tmp_path / "x.npy")
    assert "is the bundle of a language model: use generate or chat" in line
    line = fails(capsys, "chat", language.bundle("gpt"), "--message", "Zeus")
    assert "its tokenizer has no chat template; keras-transformer generate" in line
