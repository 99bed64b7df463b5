"""Every distribution that the code imports is declared in `setup.py`, under the name that `pip` knows."""

import ast
import functools
import importlib.util
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import setuptools

from keras_transformer.version import DISTRIBUTION, install_command

ROOT = Path(__file__).parents[1]
# Imported by one file, which says itself how to get them, or runs without them.
OPTIONAL = {
    "playwright": {"examples/web/measure.py"},
    "ctranslate2": {"benchmarks/llm_worker.py"},
    "openvino-genai": {"benchmarks/llm_worker.py"},
    "litert-torch": {"benchmarks/peers_tflite.py"},
    "ai-edge-quantizer": {
        "benchmarks/integer_peers.py",
        "benchmarks/peers_tflite.py",
        "benchmarks/quantization_peers.py",
    },
    "diffusers": {"tests/data/make_diffusers.py"},
    "fla": {"tests/data/checkpoints/make_rwkv7.py"},
    "flash-pytorch": {"tests/data/make_attention_forms.py"},
    "vllm": {"benchmarks/engine_load_vllm.py"},
    "peft": {"tests/data/adapters/make_peft.py", "benchmarks/fine_tune.py"},
    "conversion": {"tests/data/gguf/make_gguf.py"},  # Of a clone of llama.cpp.
    "sentence-transformers": {"tests/data/checkpoints/make_sentence_transformers.py"},
}
# Where packages_distributions() does not know a module that is not installed here.
NAMES = {"google": "protobuf", "faiss": "faiss-cpu", "PIL": "pillow", "sklearn": "scikit-learn"}


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def declared():
    """What `setup.py` hands to setuptools: `(install_requires, extras_require, name)`, names of distributions only."""
    given = {}
    original, setuptools.setup = setuptools.setup, given.update
    try:
        spec = importlib.util.spec_from_file_location("_setup", ROOT / "setup.py")
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    finally:
        setuptools.setup = original
    names = {extra: distributions(each) for extra, each in given["extras_require"].items()}
    return distributions(given["install_requires"]), names, given["name"]


def distributions(requirements):
    return {canonical(re.match(r"[\w.-]+", each).group()) for each in requirements}


def third_party(*folders):
    """Dict of distribution to the files that import it."""
    known, found = packages_distributions(), {}
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for module in imported(path):
            if module in sys.stdlib_module_names or is_ours(module):
                continue
            name = canonical(NAMES.get(module) or known.get(module, [module])[0])
            found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return found


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name.split(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def is_ours(module):
    """Whether it is the package, or a script or a package beside another one."""
    return module == "keras_transformer" or module in scripts()


@functools.cache
def scripts():
    paths = [path for folder in ("benchmarks", "docs", "examples", "tests") for path in (ROOT / folder).rglob("*.py")]
    return {path.parent.name if path.stem == "__init__" else path.stem for path in paths}


def test_every_import_of_the_package_is_declared(declared):
    required, extras, _ = declared
    allowed = required.union(*(names for extra, names in extras.items() if extra not in ("test", "benchmark", "docs")))
    found = third_party("keras_transformer", "export")
    # Weights of PyTorch files are read by everyone who has it.
    assert {name: files for name, files in found.items() if name not in allowed | {"torch"}} == {}


def test_every_import_of_scripts_and_tests_is_declared(declared):
    required, extras, _ = declared
    found = third_party("examples", "benchmarks", "tests")
    undeclared = {name: files for name, files in found.items() if name not in required.union(*extras.values())}
    assert {name: files for name, files in undeclared.items() if files != OPTIONAL.get(name)} == {}


def test_the_distribution_is_named_once(declared):
    assert declared[2] == DISTRIBUTION
    command = install_command("serve")
    assert "[serve]" in command
    assert f"'{DISTRIBUTION}[serve]'" not in command, "no index has this name"
    assert {"plots", "demo", "audio", "vision", "retrieval", "serve"} <= set(declared[1])


def test_nothing_tells_to_install_the_other_project():
    """`keras-transformer` on PyPI is another author's package."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pattern = re.compile(r"""pip3? (?:install|download) [^\n&;|]*["' ]keras[-_]transformer(?![-_\w])""")
    for name in listed.splitlines():
        path = ROOT / name
        if path.suffix in (".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".json", ".html", "") and path.is_file():
            found = pattern.findall(path.read_text(errors="ignore"))
            assert not found, f"{name}: {found}"
