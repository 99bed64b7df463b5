"""Grammars in every runtime, and on the command line."""

import json
import subprocess
import sys

import jsonschema
import pytest
from small_models import talking_model

from keras_transformer.export import export, load
from keras_transformer.export.commands import main as cli
from keras_transformer.generation import BeamSearch, Contrastive, JsonSchema, Random, Regex
from keras_transformer.generation.grammar.grammar import library

SCHEMA = {
    "type": "object",
    "properties": {"cat": {"enum": ["sat", "on", "mat"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["cat", "age"],
    "additionalProperties": False,
}
RUNTIMES = ["onnx", "tflite", "saved_model"]
PROMPTS = ["the cat", "a dog sat on the"]
TEMPLATE = "{% for each in messages %}{{ each.role }}: {{ each.content }}{{ eos_token }}{% endfor %}assistant:"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model():
    model = talking_model(TEMPLATE, spread=0.6)
    model.compile(jit_compile=False)
    return model


@pytest.fixture(scope="module")
def bundle(model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("bundle") / "tiny"
    export(model, directory, formats=RUNTIMES)
    return str(directory)


@pytest.mark.parametrize("backend", RUNTIMES)
@pytest.mark.parametrize("sampler", ["greedy", Random(), BeamSearch(3), Contrastive(5)], ids=lambda each: str(each)[:9])
def test_every_runtime_writes_what_keras_writes(model, bundle, backend, sampler):
    options = {"grammar": JsonSchema(SCHEMA), "sampler": sampler, "seed": 2, "max_new_tokens": 200}
    expected = model.generate(PROMPTS, **options)
    runtime = load(bundle, backend)
    assert runtime.generate(PROMPTS, **options) == expected
    assert len(set(expected)) > 1 or sampler != "greedy"
    for text in expected:
        jsonschema.validate(json.loads(text), SCHEMA)
    if not isinstance(sampler, BeamSearch):
        assert "".join(runtime.stream(PROMPTS[0], **options)) == runtime.generate(PROMPTS[:1], **options)[0]


def test_the_runtime_needs_neither_tensorflow_nor_keras(model, bundle):
    code = (
        "import sys; sys.modules.update(tensorflow=None, keras=None)\n"
        "from keras_transformer.export.loading.load import load\n"
        "from keras_transformer.generation import Regex\n"
        f"print(load({bundle!r}, 'onnx').chat('the cat', grammar=Regex('(sat|mat) on [a-z]{{3}}'), max_new_tokens=20))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    expected = model.chat("the cat", grammar=Regex("(sat|mat) on [a-z]{3}"), max_new_tokens=20)
    assert found == expected + "\n"


def test_the_commands(model, bundle, capsys, tmp_path):
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    words = ["--json-schema", str(file), "--max-new-tokens", "90"]
    assert cli.main(["generate", bundle, "the cat", *words]) == 0
    assert capsys.readouterr().out == model.generate("the cat", grammar=JsonSchema(SCHEMA), max_new_tokens=90) + "\n"
    assert cli.main(["generate", bundle, "the cat", "--regex", "on|off", "--sampler", "beam"]) == 0
    assert capsys.readouterr().out in ("on\n", "off\n")
    assert cli.main(["chat", bundle, "--message", "the cat", "--regex", "on|off"]) == 0
    assert capsys.readouterr().out in ("on\n", "off\n")


@pytest.mark.parametrize(
    "words, status, message",
    [
        (["--regex", "a("], 1, "unclosed group"),
        (["--json-schema", "none.json"], 1, "'none.json' cannot be read: No such file"),
        (["--regex", "a", "--json-schema", "b"], 2, "not allowed with"),
        (["--regex", "a", "--stop", "b"], 1, "where a text ends"),
    ],
)
def test_errors_of_the_command_are_one_line(bundle, capsys, words, status, message):
    assert cli.main(["generate", bundle, "the cat", *words]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err.splitlines()[-1]


def test_a_missing_library_on_the_command_line(bundle, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    library.cache_clear()
    try:
        assert cli.main(["generate", bundle, "the cat", "--regex", "a"]) == 1
    finally:
        library.cache_clear()
    assert "a grammar needs llguidance" in capsys.readouterr().err
