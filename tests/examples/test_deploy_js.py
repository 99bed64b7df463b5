"""The Node recipe of `examples/deploy`, run with onnxruntime-node and LiteRT.js, and the one for React Native.

It runs where Node and the packages are: `npm install` in examples/deploy/node.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from deploy_cases import COUNT, FOLDER, PROMPTS, TEXTS, check_classes, expected_classes, expected_tokens, model

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("node") is None, reason="no node")]
MODULES = Path(os.environ.get("KERAS_TRANSFORMER_NODE_MODULES", FOLDER / "node" / "node_modules"))
# By backend: the option of the recipe, and the package that it needs.
RUNTIMES = {"onnx": ("onnx", "onnxruntime-node"), "tflite": ("litert", "@litertjs/core")}
TOKENIZE = """
import {{ readFileSync }} from "node:fs";
import {{ BytePair }} from {module};
const [config, file] = ["tokenizer_config.json", "tokenizer.json"].map((name) => JSON.parse(readFileSync({folder} + name)));
const tokenizer = new BytePair(config, file);
const texts = {texts};
const ids = texts.map((text) => tokenizer.encode(text));
console.log(JSON.stringify(ids.map((each, index) => [each, tokenizer.decode(each) === texts[index]])));
"""
REACT_NATIVE = """
import {{ Models }} from {module};
const [pixels, prompts, count] = process.argv.slice(2).map((word) => JSON.parse(word));
const models = await Models.open();
const classes = await models.classify(Float32Array.from(pixels));
const tokens = [];
for (const prompt of prompts) {{
  const texts = models.continueText(prompt, count);
  let step = await texts.next();
  while (!step.done) {{
    step = await texts.next();
  }}
  tokens.push(step.value);
}}
console.log(JSON.stringify([classes, tokens]));
"""


def run(*words):
    environment = {**os.environ, "KERAS_TRANSFORMER_NODE_MODULES": str(MODULES)}
    command = ["node", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment)


@pytest.fixture(params=RUNTIMES)
def runtime(request):
    """The backend, and the option of the recipe."""
    option, package = RUNTIMES[request.param]
    if not (MODULES / package).is_dir():
        pytest.skip(f"no {package}: npm install in examples/deploy/node")
    return request.param, option


def test_generates_the_tokens_of_the_python_runtime(runtime, deploy_bundles):
    backend, option = runtime
    for prompt, expected in zip(PROMPTS, expected_tokens(deploy_bundles, backend), strict=True):
        process = run(
            FOLDER / "node" / "main.js", "generate", deploy_bundles / "decoder", prompt, COUNT, "--runtime", option
        )
        assert f"tokens {' '.join(map(str, expected))}\n" in process.stderr
        assert process.stdout == model(deploy_bundles, backend).tokenizer.decode(expected) + "\n"


def test_classifies_as_the_python_runtime(runtime, deploy_bundles):
    backend, option = runtime
    words = ("classify", deploy_bundles / "classifier", deploy_bundles / "digit.pgm", "--runtime", option)
    check_classes(run(FOLDER / "node" / "main.js", *words).stdout, expected_classes(deploy_bundles, backend))


def test_names_errors(runtime, deploy_bundles, tmp_path):
    (tmp_path / "large.pgm").write_bytes(b"P5\n9 8\n255\n" + bytes(72))
    for words, message in (
        (
            ("classify", deploy_bundles / "classifier", tmp_path / "large.pgm"),
            "an image of 8x9x1; the model takes 8x8x1",
        ),
        (("generate", deploy_bundles / "decoder", "", 1), "the prompt is empty"),
        (("write",), "expected: classify"),
    ):
        process = run(FOLDER / "node" / "main.js", *words, "--runtime", runtime[1])
        assert process.returncode == 1
        assert message in process.stderr


def test_the_tokenizer_gives_the_ids_of_the_python_one(deploy_bundles):
    module = (FOLDER / "js_common" / "byte_pair.js").as_uri()
    folder = f"{deploy_bundles / 'decoder' / 'tokenizer'}/"
    script = TOKENIZE.format(module=json.dumps(module), folder=json.dumps(folder), texts=json.dumps(TEXTS))
    process = run("--input-type=module", "-e", script)
    tokenizer = model(deploy_bundles, "onnx").tokenizer
    assert json.loads(process.stdout) == [[tokenizer.encode(text), True] for text in TEXTS]


@pytest.mark.parametrize("platform", ["android", "ios"])
def test_the_react_native_recipe_in_node(deploy_bundles, tmp_path, platform):
    """The recipe without its screen: onnxruntime-node takes the place of onnxruntime-react-native."""
    if not (MODULES / "onnxruntime-node").is_dir():
        pytest.skip("no onnxruntime-node: npm install in examples/deploy/node")
    for name in ("classifier", "decoder"):
        shutil.copytree(deploy_bundles / name, tmp_path / "bundles" / name)
    (tmp_path / "run.mjs").write_text(
        REACT_NATIVE.format(module=json.dumps((FOLDER / "react_native/models.js").as_uri()))
    )
    pixels = list((deploy_bundles / "digit.pgm").read_bytes()[-64:])
    names = {"APP": tmp_path, "PLATFORM": platform, "NODE_MODULES": MODULES}
    environment = {**os.environ, **{f"KERAS_TRANSFORMER_{name}": str(value) for name, value in names.items()}}
    hooks = Path(__file__).with_name("react_native_hooks.mjs")
    words = [json.dumps(each) for each in (pixels, PROMPTS, COUNT)]
    command = ["node", "--import", hooks, tmp_path / "run.mjs", *words]
    process = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=environment)
    assert process.returncode == 0, process.stderr
    classes, tokens = json.loads(process.stdout)
    check_classes(
        "\n".join(f"{name} {probability}" for name, probability in classes), expected_classes(deploy_bundles, "onnx")
    )
    assert tokens == expected_tokens(deploy_bundles, "onnx")
    assert (tmp_path / "documents").exists() == (platform == "android")
    assert not list(tmp_path.glob("documents/**/*.tflite"))
