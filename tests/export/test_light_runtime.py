"""Bundles run with NumPy and one runtime, as on a machine where nothing else is installed."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

from keras_transformer import text
from keras_transformer.export.bundle.tokenizers import write_tokenizer

pytestmark = pytest.mark.slow

ALLOWED = {
    "onnx": {"onnxruntime", "flatbuffers", "packaging", "google"},
    "tflite": {"ai_edge_litert", "flatbuffers", "ml_dtypes"},
}
# Blocks the import of all packages except these, NumPy's dependencies and the standard library.
HOOK = """
import sys

class Refuse:
    allowed = {allowed!r} | {{"numpy", "lazy_loader", "keras_transformer", "site", "sitecustomize"}}
    allowed |= set(sys.stdlib_module_names)

    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in self.allowed and not top.startswith(("_", "cython_runtime")):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
import numpy as np
from keras_transformer.export import MissingLibraryError, load, verify_bundle
"""
EXPLAINED = "keras-transformer explain missinglibraryerror"
LINES = ["ab cd ef", "dg hij, kab cd"] * 9
TOKENIZERS = {
    "wordpiece": lambda: text.WordPiece.train(LINES, 45),
    "sentencepiece": lambda: text.SentencePiece.train(LINES, 40, byte_fallback=False),
    "byte_pair": lambda: text.BytePair.train(LINES, 262),
    "characters": lambda: text.Characters.train(LINES),
    "bytes": lambda: text.Bytes(),
}
LIBRARIES = {"wordpiece": "tokenizers", "byte_pair": "tokenizers", "sentencepiece": "sentencepiece"}


def run(backend, script, *libraries):
    """Runs a script with NumPy, one runtime and the given libraries only; returns its JSON output."""
    code = HOOK.format(allowed=ALLOWED[backend] | set(libraries)) + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def clean_environment():
    hidden = ("COV_", "PYTEST", "PYTHONPATH")  # The last has what processes of the tests import.
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


@pytest.fixture(scope="module")
def bundles(exported, tmp_path_factory):
    """Returns the bundle of the encoder with each tokenizer type."""
    base = tmp_path_factory.mktemp("tokenizers")
    for kind, make in TOKENIZERS.items():
        bundle = pathlib.Path(shutil.copytree(exported.bundle("encoder"), base / kind))
        manifest = json.loads((bundle / "manifest.json").read_text())
        tokenizer = make()
        manifest["tokenizer"] = write_tokenizer(bundle, tokenizer).to_dict()
        add_files(bundle, manifest)
        (bundle / "manifest.json").write_text(json.dumps(manifest))
    return base


def add_files(bundle, manifest):
    from keras_transformer.export.bundle.manifest import file_records

    manifest["files"] = {name: each.to_dict() for name, each in file_records(bundle).items() if name != "manifest.json"}


@pytest.mark.parametrize("backend", ["onnx", "tflite"])
def test_arrays_texts_and_proofs(exported, language, bundles, backend):
    script = f"""
        import json
        model = load({str(exported.bundle("encoder"))!r}, {backend!r}).warm_up()
        ids = [[3, 4, 5]]
        pooled = model(token_ids=ids, padding_mask=np.ones((1, 3), bool))["pooled"]
        verify_bundle({str(exported.bundle("encoder"))!r}, [{backend!r}])
        texts = load({str(bundles)!r} + "/characters", {backend!r})(["ab cd", "ef"])["pooled"]
        gpt, translator = (load(path, {backend!r}) for path in {[str(language.bundle(n)) for n in ("gpt", "translator")]!r})
        words = gpt.warm_up().generate("abc", max_new_tokens=6), "".join(gpt.stream("abc", max_new_tokens=6))
        beam = translator.generate(["abc", "d"], max_new_tokens=6, sampler="beam")
        std = sys.stdlib_module_names
        found = sorted({{name.split(".")[0] for name in sys.modules if not name.startswith("_")}} - set(std))
        print(json.dumps([pooled.tolist(), texts.tolist(), words, beam, found]))
    """
    pooled, texts, words, beam, found = run(backend, script)
    from keras_transformer.export import load

    model = load(exported.bundle("encoder"), "saved_model")
    expected = model(token_ids=[[3, 4, 5]], padding_mask=[[True] * 3])["pooled"]
    assert abs(expected - pooled).max() < 1e-5
    tokenizer = TOKENIZERS["characters"]()
    assert abs(model(tokenizer(["ab cd", "ef"]))["pooled"] - texts).max() < 1e-5
    gpt, translator = (load(language.bundle(name), "saved_model") for name in ("gpt", "translator"))
    assert words == [gpt.generate("abc", max_new_tokens=6)] * 2
    assert beam == translator.generate(["abc", "d"], max_new_tokens=6, sampler="beam")
    runtime = {"onnx": "onnxruntime", "tflite": "ai_edge_litert"}[backend]
    assert set(found) - {"cython_runtime", "google", "flatbuffers", "packaging", "lazy_loader", "ml_dtypes"} == {
        "keras_transformer",
        "numpy",
        runtime,
    }


def test_what_a_tokenizer_needs_is_named_and_is_enough(bundles):
    script = f"""
        import json
        found = {{}}
        for kind in {list(TOKENIZERS)!r}:
            try:
                model = load({str(bundles)!r} + "/" + kind, "onnx")
                found[kind] = model.tokenizer.decode(model.tokenizer.encode("ab cd"))
            except MissingLibraryError as error:
                found[kind] = str(error)
        print(json.dumps(found))
    """
    missing = run("onnx", script)
    for kind in TOKENIZERS:
        library = LIBRARIES.get(kind)
        needed = f"the bundle's tokenizer needs {library}: pip install {library} ({EXPLAINED})"
        assert missing[kind] == (needed if library else "ab cd")
    assert run("onnx", script, "tokenizers", "sentencepiece") == dict.fromkeys(TOKENIZERS, "ab cd")


def test_a_missing_runtime_is_named(exported):
    script = f"""
        import json
        found = []
        for backend in ("tflite", "saved_model"):
            try:
                load({str(exported.bundle("mlp"))!r}, backend)
            except MissingLibraryError as error:
                found.append(str(error))
        print(json.dumps(found))
    """
    tflite, saved_model = run("onnx", script)
    for backend, library, found in (("tflite", "ai-edge-litert", tflite), ("saved_model", "tensorflow", saved_model)):
        assert found == f"backend '{backend}' needs {library}: pip install {library} ({EXPLAINED})"


def test_the_command_line_needs_no_more(exported):
    script = f"""
        import json
        from keras_transformer.export.commands import main as cli
        bundle = {str(exported.bundle("mlp"))!r}
        import contextlib, io
        with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(io.StringIO()) as progress:
            status = cli.main(["verify", bundle, "--backend", "onnx"])
        print(json.dumps([status, shown.getvalue(), progress.getvalue()]))
    """
    status, shown, progress = run("onnx", script)
    assert progress == "[1/1] verifying onnx\n"
    assert status == 0
    assert "onnx" in shown
