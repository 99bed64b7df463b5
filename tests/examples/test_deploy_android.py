"""The Kotlin recipe of `examples/deploy`, compiled and run on a computer.

The classes of LiteRT, ONNX Runtime and Android are stubs with the published signatures. A run of a model is handed to this
process, which computes it with the Python packages; everything else is the recipe's own code. It runs where `kotlinc` and
`org.json` are: `apt install kotlin libandroid-json-org-java`.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from deploy_cases import COUNT, FOLDER, PROMPTS, TEXTS, expected_classes, expected_tokens, model

JAVA = Path("/usr/share/java")
LIBRARIES = [JAVA / name for name in ("json-android.jar", "kotlin-stdlib-jdk7.jar", "kotlin-stdlib.jar")]
HERE = shutil.which("kotlinc") and shutil.which("java") and all(path.exists() for path in LIBRARIES)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HERE, reason="no kotlinc, or no org.json")]


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """The class path of the compiled recipe."""
    target = tmp_path_factory.mktemp("android") / "recipe.jar"
    sources = [*FOLDER.glob("android/src/main/kotlin/app/*.kt"), *Path(__file__).parent.glob("android_stubs/*.kt")]
    path = ":".join(map(str, LIBRARIES))
    process = subprocess.run(
        ["kotlinc", *sources, "-cp", path, "-d", target, "-Werror"], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return f"{target}:{path}"


def answer(classes, *words, computing=None, given=""):
    """What `Main.kt` of the stubs answers; `computing` computes the runs of models that it asks for."""
    command = ["java", "-cp", classes, "test.MainKt", *map(str, words)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    environment = {
        **os.environ,
        "JAVA_TOOL_OPTIONS": "-Dfile.encoding=UTF-8 -Dsun.jnu.encoding=UTF-8",
        "LC_ALL": "C.UTF-8",
    }
    with subprocess.Popen(command, **pipes, stderr=subprocess.PIPE, env=environment) as process:
        process.stdin.write(given)
        process.stdin.flush()
        for line in process.stdout:
            record = json.loads(line)
            if "answer" in record:
                return record["answer"]
            print(json.dumps(computing(record)), file=process.stdin, flush=True)
        pytest.fail(process.stderr.read()[-3000:])


class Computing:
    """Runs signatures: what the stubs ask for, as pairs of an output and its values."""

    def __init__(self):
        self.opened = {}

    def __call__(self, record):
        runner = self._tflite(record) if record["signature"] else self._onnx(record)
        return [[name, np.ravel(value).tolist()] for name, value in runner.items()]

    def _onnx(self, record):
        import onnxruntime

        if record["file"] not in self.opened:
            self.opened[record["file"]] = onnxruntime.InferenceSession(record["file"])
        session = self.opened[record["file"]]
        names = [output.name for output in session.get_outputs()]
        arrays = {}
        for each in session.get_inputs():
            shape = [1, *(size if isinstance(size, int) else -1 for size in each.shape[1:])]
            dtype = "int32" if each.type == "tensor(int32)" else "float32"
            arrays[each.name] = np.array(record["inputs"][each.name], dtype).reshape(shape)
        return dict(zip(names, session.run(None, arrays), strict=True))

    def _tflite(self, record):
        from ai_edge_litert.interpreter import Interpreter

        key = record["file"], record["signature"]
        if key not in self.opened:
            self.opened[key] = Interpreter(record["file"]).get_signature_runner(record["signature"])
        details = self.opened[key].get_input_details()
        inputs = {name: np.array(values, details[name]["dtype"]) for name, values in record["inputs"].items()}
        return self.opened[key](**{name: array.reshape(details[name]["shape"]) for name, array in inputs.items()})


@pytest.mark.parametrize("backend", ["tflite", "onnx"])
def test_generates_the_tokens_of_the_python_runtime(classes, deploy_bundles, backend):
    words = ("generate", backend, deploy_bundles / "decoder", COUNT, *PROMPTS)
    assert answer(classes, *words, computing=Computing()) == expected_tokens(deploy_bundles, backend)


@pytest.mark.parametrize("backend", ["tflite", "onnx"])
def test_classifies_as_the_python_runtime(classes, deploy_bundles, backend):
    words = ("classify", backend, deploy_bundles / "classifier", deploy_bundles / "digit.pgm")
    found = answer(classes, *words, computing=Computing())
    expected = expected_classes(deploy_bundles, backend)
    assert [name for name, _ in found] == [name for name, _ in expected]
    np.testing.assert_allclose([each for _, each in found], [each for _, each in expected], atol=1e-5)


def test_the_tokenizer_gives_the_ids_of_the_python_one(classes, deploy_bundles):
    found = answer(classes, "tokens", deploy_bundles / "decoder" / "tokenizer", given=json.dumps(TEXTS) + "\n")
    tokenizer = model(deploy_bundles, "onnx").tokenizer
    assert found == [[tokenizer.encode(text), True] for text in TEXTS]
