"""The C++ recipes of `examples/deploy`, compiled, linked with the libraries in the Python wheels, and run."""

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from deploy_cases import COUNT, FOLDER, PROMPTS, TEXTS, check_classes, expected_classes, expected_tokens, model

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")]
FLAGS = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]
TOKENIZE = """
#include <iostream>
#include "byte_pair.h"

int main(int, char** argv) {
  const BytePair tokenizer(argv[1]);
  for (char** text = argv + 2; *text != nullptr; ++text) {
    const auto ids = tokenizer.encode(*text);
    for (int id : ids) std::cout << id << ' ';
    std::cout << (tokenizer.decode(ids) == *text ? "same" : "different") << '\\n';
  }
}
"""
# By backend: the recipe, the module that brings the library, the file and the name by which programs look for it.
RECIPES = {
    "onnx": ("cpp_onnxruntime", "onnxruntime", "capi/libonnxruntime.so.*", "libonnxruntime.so.1"),
    "tflite": ("cpp_litert", "ai_edge_litert", "libLiteRt.so", "libLiteRt.so"),
}


@pytest.fixture(scope="module", params=RECIPES)
def program(request, tmp_path_factory):
    """The backend and the compiled recipe."""
    recipe, module, pattern, name = RECIPES[request.param]
    spec = importlib.util.find_spec(module)
    library = next(Path(spec.origin).parent.glob(pattern), None) if spec else None
    if library is None:
        pytest.skip(f"no library in {module}")
    folder = tmp_path_factory.mktemp(recipe)
    (folder / name).symlink_to(library)
    command = ["g++", *FLAGS, FOLDER / recipe / "main.cpp", "-o", folder / "transformer", folder / name]
    process = subprocess.run([*command, f"-Wl,-rpath,{folder}"], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    return request.param, folder / "transformer"


def run(path, *words, **environment):
    return subprocess.run([path, *map(str, words)], capture_output=True, env={**os.environ, **environment})


def test_generates_the_tokens_of_the_python_runtime(program, deploy_bundles):
    backend, path = program
    for prompt, expected in zip(PROMPTS, expected_tokens(deploy_bundles, backend), strict=True):
        process = run(path, "generate", deploy_bundles / "decoder", prompt, COUNT)
        assert f"tokens {' '.join(map(str, expected))}\n".encode() in process.stderr
        text = process.stdout.decode("utf-8", "replace")
        assert text == model(deploy_bundles, backend).tokenizer.decode(expected) + "\n"


def test_packed_weights_are_written_once(program, deploy_bundles, tmp_path):
    backend, path = program
    if backend != "tflite":
        pytest.skip("ONNX Runtime writes none")
    (expected,) = expected_tokens(deploy_bundles, backend)[:1]
    words, folder = ("generate", deploy_bundles / "decoder", PROMPTS[0], COUNT), tmp_path / "weights"
    found = []
    for _ in range(2):
        process = run(path, *words, WEIGHT_CACHE=str(folder))
        assert f"tokens {' '.join(map(str, expected))}\n".encode() in process.stderr
        found.append({each.name: (each.stat().st_mtime_ns, each.read_bytes()) for each in folder.iterdir()})
    assert found[0] == found[1]
    manifest = json.loads((deploy_bundles / "decoder" / "manifest.json").read_text())
    assert list(found[0]) == [f"{manifest['files']['model.tflite']['sha256'][:32]}.xnnpack"]
    (tmp_path / "file").write_text("")
    process = run(path, *words, WEIGHT_CACHE=str(tmp_path / "file"))
    assert f"tokens {' '.join(map(str, expected))}\n".encode() in process.stderr


def test_classifies_as_the_python_runtime(program, deploy_bundles):
    backend, path = program
    process = run(path, "classify", deploy_bundles / "classifier", deploy_bundles / "digit.pgm")
    check_classes(process.stdout.decode(), expected_classes(deploy_bundles, backend))


def test_stops_at_the_length_of_the_model_and_names_errors(program, deploy_bundles, tmp_path):
    backend, path = program
    process = run(path, "generate", deploy_bundles / "decoder", PROMPTS[0], 1000)
    tokens = next(line for line in process.stderr.splitlines() if line.startswith(b"tokens")).split()[1:]
    whole = model(deploy_bundles, backend).generate(PROMPTS[0], max_new_tokens=125)
    assert model(deploy_bundles, backend).tokenizer.decode(list(map(int, tokens))) == whole
    (tmp_path / "large.pgm").write_bytes(b"P5\n9 8\n255\n" + bytes(72))
    for words, message in (
        (("classify", deploy_bundles / "classifier", tmp_path / "large.pgm"), b"9x8x1 is not the size"),
        (("generate", deploy_bundles / "classifier", "a", 1), b'no "tokenizer"'),
        (("generate", tmp_path / "none", "a", 1), b"cannot open"),
        (("generate", deploy_bundles / "decoder", "", 1), b"the prompt is empty"),
    ):
        process = run(path, *words)
        assert process.returncode == 1
        assert message in process.stderr


def test_the_tokenizer_gives_the_ids_of_the_python_one(deploy_bundles, tmp_path):
    (tmp_path / "tokenize.cpp").write_text(TOKENIZE)
    command = ["g++", *FLAGS, f"-I{FOLDER / 'cpp_common'}", tmp_path / "tokenize.cpp", "-o", tmp_path / "tokenize"]
    subprocess.run(command, check=True)
    texts = [text.replace("\0", "") for text in TEXTS]
    process = run(tmp_path / "tokenize", deploy_bundles / "decoder" / "tokenizer", *texts)
    tokenizer = model(deploy_bundles, "onnx").tokenizer
    expected = [" ".join(map(str, [*tokenizer.encode(text), "same"])) for text in texts]
    assert process.stdout.decode().splitlines() == expected
