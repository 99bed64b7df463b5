"""Every dependency with its versions, license and purpose, for the documentation.

    python benchmarks/dependencies_table.py          # writes docs/dependencies.md
    python benchmarks/dependencies_table.py --check  # fails where setup.py, or what is installed, says otherwise

Licenses are those of the metadata of what is installed; the page keeps those of what is not. Reasons are below.
"""

import argparse
import importlib.util
import pathlib
import re
import sys
from importlib.metadata import PackageNotFoundError, metadata

import setuptools

ROOT = pathlib.Path(__file__).parents[1]
FILE = ROOT / "docs" / "dependencies.md"
HEAD = """# Dependencies

What `pip install` brings, and why. Licenses are those that the packages state of themselves; wheels may contain more.
`nox -s sbom` lists all that is installed with them, in `build/sbom.json` (CycloneDX). Printed by
`python benchmarks/dependencies_table.py`. What only `benchmarks/` uses is in the extra `benchmark` of `setup.py`.

"""
WHY = {
    "ai-edge-litert": "runs TFLite files",
    "anyio": "waits for requests and tensors in servers",
    "bm25s": "full-text search of the example of browsing",
    "coremltools": "writes Core ML programs",
    "ethos-u-vela": "compiles TFLite files for Ethos-U",
    "faiss-cpu": "nearest neighbors in large databases",
    "flatbuffers": "reads and writes TFLite files",
    "gguf": "names and block formats of llama.cpp's files",
    "grpcio": "the Open Inference Protocol over gRPC",
    "httptools": "parses HTTP requests",
    "h5py": "reads .keras files",
    "huggingface-hub": "downloads checkpoints",
    "jax": "another backend of Keras",
    "jinja2": "chat templates, in its sandbox",
    "jsonschema": "tests of the schema of manifests",
    "keras": "models, layers and training",
    "keras-hub": "models to export in tests",
    "kubernetes-validate": "tests of Kubernetes manifests",
    "latex2mathml": "formulas on the site",
    "lazy-loader": "packages that load on first use",
    "litert-lm": "runs LiteRT-LM files, to compare them",
    "litert-lm-builder": "writes LiteRT-LM files",
    "llguidance": "masks of tokens that obey a grammar",
    "matplotlib": "plots",
    "mediapipe": "runs files for MediaPipe Tasks, to compare them",
    "mkdocs": "builds the site",
    "mike": "versions of the site, beside each other",
    "mkdocs-material": "theme of the site",
    "mkdocstrings": "pages of docstrings on the site",
    "ml-dtypes": "bfloat16, float8 and 4-bit numbers in numpy",
    "mypy": "checks types",
    "numpy": "arrays",
    "onnx": "reads and writes ONNX files",
    "onnx-ir": "rewrites ONNX graphs",
    "onnxruntime": "runs ONNX files",
    "onnxruntime-extensions": "operators of strings in ONNX files",
    "onnxruntime-genai": "runs decoders written for it, to compare them",
    "onnxruntime-qnn": "simulates Hexagon; it contains Qualcomm's libraries, under Qualcomm's license",
    "onnxscript": "rules that rewrite ONNX graphs",
    "openvino": "writes and runs OpenVINO IR",
    "orbax-checkpoint": "checkpoints of weights that are split over devices",
    "orjson": "JSON of requests",
    "pillow": "reads images",
    "prometheus-client": "`/metrics` of servers",
    "protobuf": "messages of gRPC and of ONNX",
    "pyright": "checks types",
    "pytest": "runs tests",
    "pytest-timeout": "ends tests that hang",
    "pytest-xdist": "runs tests in parallel",
    "pyyaml": "tests of workflows and manifests",
    "ray": "replicas of models on many machines",
    "rich": "tables and bars on a terminal",
    "ruff": "mistakes and form of the code; signatures on the site",
    "sacrebleu": "BLEU and chrF",
    "sacremoses": "tokenizers of XLM and FSMT, and text metrics",
    "safetensors": "reads and writes checkpoints",
    "scikit-learn": "data of the demo and of tests",
    "scipy": "signals and statistics of the demo and of tests",
    "sentencepiece": "tokenizers of `tokenizer.model` files",
    "setuptools": "reads `setup.py` in tests",
    "soundfile": "reads recordings",
    "soxr": "changes sampling rates",
    "starlette": "routes of HTTP servers",
    "tensorflow": "traces graphs; SavedModel and the converter to TFLite",
    "tensorflow-text": "tokenizers inside SavedModels",
    "tf2onnx": "converts TensorFlow's operations to ONNX",
    "tflite-micro": "runs files for microcontrollers, to compare them; its sources are Apache-2.0",
    "tokenizers": "tokenizers of `tokenizer.json` files",
    "usearch": "nearest neighbors that are found without training",
    "uvicorn": "HTTP servers",
    "uvloop": "the event loop of HTTP servers",
}
# What packages write, in the words of SPDX; the first that is found in the text counts.
SPDX = {
    "mozilla": "MPL-2.0",
    "lgpl": "LGPL-2.1-or-later",
    "python software foundation": "PSF-2.0",
    "apache": "Apache-2.0",
    "mit": "MIT",
    "bsd": "BSD-3-Clause",
    "isc": "ISC",
}


def requirements() -> dict[str, dict[str, list[str]]]:
    """Dict of distribution to a dict of its versions to the extras that ask for them; "" is the package itself."""
    given: dict = {}
    original, setuptools.setup = setuptools.setup, given.update
    try:
        spec = importlib.util.spec_from_file_location("_setup", ROOT / "setup.py")
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    finally:
        setuptools.setup = original
    found: dict[str, dict[str, list[str]]] = {}
    for extra, listed in {"": given["install_requires"], **given["extras_require"]}.items():
        for line in listed if extra != "benchmark" else ():
            name, versions = re.match(r"([\w.-]+)(?:\[[^]]*\])?([^;]*)", line).groups()
            found.setdefault(name, {}).setdefault(versions.strip(), []).append(extra)
    return found


def license_of(name: str) -> str | None:
    """The license that an installed distribution states, as SPDX writes it; None where it is not installed."""
    try:
        stated = metadata(name)
    except PackageNotFoundError:
        return None
    if expression := stated.get("License-Expression"):
        return expression
    classifiers = [each for each in stated.get_all("Classifier", []) if each.startswith("License ::")]
    text = " ".join([*classifiers, (stated.get("License") or "")[:80]]).lower()
    # Two licenses to choose from, or that hold both.
    found = dict.fromkeys(spdx for words, spdx in SPDX.items() if re.search(rf"\b{words}\b", text))
    return " OR ".join(found) or "not stated"


def stored_licenses() -> dict[str, str]:
    """Dict of distribution to license, of the page as it is."""
    text = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    return dict(re.findall(r"^\| \[?`?([\w.-]+)`?\]?[^|]*\| [^|]*\| [^|]*\| ([^|]+?) \|", text, re.MULTILINE))


def rows() -> list[list[str]]:
    """Name, versions, extras, license and purpose of each dependency, those of the package itself first."""
    stored, found = stored_licenses(), []
    for name, versions in requirements().items():
        extras = sorted({extra for each in versions.values() for extra in each})
        ranges = "; ".join(dict.fromkeys(each.replace(",", ", ") for each in versions))
        wanted = "always" if "" in extras else ", ".join(extras)
        found.append([f"`{name}`", ranges, wanted, license_of(name) or stored.get(name, "unknown"), WHY[name]])
    return sorted(found, key=lambda row: (row[2] != "always", row[0].lower()))


def page() -> str:
    """The text of docs/dependencies.md."""
    table = [["dependency", "versions", "with", "license", "what for"], ["---"] * 5, *rows()]
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the page, and write nothing")
    if not parser.parse_args().check:
        FILE.write_text(page(), encoding="utf-8")
        return 0
    stored, found = FILE.read_text(encoding="utf-8").splitlines(), page().splitlines()
    differences = [f"- {line}" for line in stored if line not in found]
    differences += [f"+ {line}" for line in found if line not in stored]
    differences += [f"no license: {line}" for line in found if "| unknown |" in line]
    print(*differences, sep="\n", end="\n" if differences else "")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
