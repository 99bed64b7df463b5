"""Metadata, dependencies and the entry point; tools are configured in pyproject.toml."""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def constant(name):
    """A constant of `keras_transformer/version.py`, read as text so that building needs no dependency."""
    for line in (ROOT / "keras_transformer" / "version.py").read_text().splitlines():
        if line.startswith(f"{name} ="):
            return line.split('"')[1]
    raise RuntimeError(f"keras_transformer/version.py holds no {name}")


# Where the repository is published, such as https://host/owner/name; the workflows set it. Nothing is linked without it.
REPOSITORY = os.environ.get("REPOSITORY_URL", "").rstrip("/")


def long_description(readme, repository, version):
    """The README as the package index shows it: relative links lead to the repository, or are their text alone.

    Args:
        readme: str, Markdown. Code between fences stays as it is.
        repository: str. Its address, or "".
        version: str. Pages and pictures are those of the tag `v` + version.
    """

    def link(found):
        picture, text, target = found.groups()
        if not repository:
            return "" if picture else text
        return f"{picture}[{text}]({repository}/{'raw' if picture else 'blob'}/v{version}/{target})"

    blocks = re.split(r"(^```.*?^```$)", readme, flags=re.DOTALL | re.MULTILINE)
    relative = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z+]+:|#)([^)\s]+)\)")
    return "".join(block if block.startswith("```") else relative.sub(link, block) for block in blocks)


def project_urls(repository, version):
    """The links of the index beside the description: none without a repository."""
    pages = {"Source": "", "Documentation": f"/blob/v{version}/docs/index.md", "Issues": "/issues"}
    pages |= {"Changelog": f"/blob/v{version}/CHANGELOG.md", "Security": f"/blob/v{version}/SECURITY.md"}
    return {name: repository + page for name, page in pages.items()} if repository else {}


PLOTS = ["matplotlib>=3.9.2"]
ETHOS_U = ["ethos-u-vela>=5.2,<6"]
# It has development releases only, named by the second, for one platform.
MICRO = ["tflite-micro>=0.dev20261001000000; sys_platform == 'linux' and platform_machine == 'x86_64'"]
CHAT = ["jinja2>=3.1.6,<4"]
GRAMMAR = ["llguidance>=1.8,<2"]
GGUF = ["gguf>=0.17,<0.20"]
METRICS = ["sacrebleu>=2.4", "sacremoses>=0.1"]
VISION = ["pillow>=11,<14"]
AUDIO = ["soundfile>=0.12.1,<1", "soxr>=0.5,<2"]
HTTP = [
    "starlette>=1.0,<2",
    "uvicorn>=0.50,<1",
    "uvloop>=0.21,<1; sys_platform != 'win32'",
    "httptools>=0.6.3,<1",
    "anyio>=4.16,<5",
    "orjson>=3.11,<4",
    "prometheus-client>=0.26,<1",
]
GRPC = ["grpcio>=1.70,<2", "protobuf>=5,<8"]
ORBAX = ["orbax-checkpoint>=0.11.33,<0.13"]
DOCS = [
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.8,<10",
    "mkdocstrings[python]>=1.0.8,<2",
    "latex2mathml>=3.81,<4",
    "ruff>=0.8",
]
DEMO = [*PLOTS, "scikit-learn>=1.5.2", "scipy>=1.17,<2", "pillow>=11"]

setup(
    name=constant("DISTRIBUTION"),
    version=constant("__version__"),
    description="Train any transformer with model.fit, and export it proven equal to SavedModel, TFLite and ONNX.",
    long_description=long_description(
        (ROOT / "README.md").read_text(encoding="utf-8"), REPOSITORY, constant("__version__")
    ),
    long_description_content_type="text/markdown",
    author="The keras_transformer authors",
    keywords=[
        *("keras", "transformer", "attention", "export", "onnx", "tflite", "litert", "savedmodel", "quantization"),
        *("language model", "vision transformer", "speech recognition", "deep learning"),
    ],
    project_urls=project_urls(REPOSITORY, constant("__version__")),
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Libraries :: Python Modules",
        "Typing :: Typed",
    ],
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",
    packages=[
        *find_packages(include=["keras_transformer", "keras_transformer.*"]),
        *(f"keras_transformer.{package}" for package in find_packages(include=["export", "export.*"])),
    ],
    package_dir={"keras_transformer.export": "export"},
    package_data={"": ["py.typed", "*.pyi", "*.schema.json", "*.css", "view.js"]},
    install_requires=[
        "tensorflow>=2.20,<2.22",
        "keras>=3.14,<4",
        "lazy-loader>=0.4,<1",
        "safetensors>=0.5,<1",
        "huggingface-hub>=1,<3",
        "tensorflow-text>=2.20,<2.22",
        # `export/onnx/convert.py` calls modules of it that are not documented: only the releases that were tried.
        "tf2onnx>=1.17,<1.18",
        "onnx>=1.19,<2",
        "onnx-ir>=1.1,<2",
        "onnxscript>=0.7.2,<0.8",
        "onnxruntime>=1.27,<2",  # The first that refuses all weights outside the folder of a file by itself.
        "ai-edge-litert>=2.1,<3",
        "flatbuffers>=25.12,<26",
        "numpy>=2.0,<3",
        "ml-dtypes>=0.6,<1",
        "tokenizers>=0.23,<1",
        "sentencepiece>=0.2.3,<0.3",
        "rich>=13.7,<16",  # Tables on a terminal; Keras needs it too.
    ],
    extras_require={
        "plots": PLOTS,
        "demo": DEMO,
        "metrics": METRICS,
        "retrieval": ["faiss-cpu>=1.12,<2", "usearch>=2.20,<3"],
        "docs": [*PLOTS, *DOCS],
        "serve": HTTP,
        "grpc": [*HTTP, *GRPC],
        "ray": [*HTTP, "ray[serve]>=2.60,<3"],
        "vision": VISION,
        "audio": AUDIO,
        "cuda": ["tensorflow[and-cuda]>=2.20,<2.22"],
        "jax": ["jax>=0.10", *ORBAX],
        "chat": CHAT,
        "grammar": GRAMMAR,
        "gguf": GGUF,
        "genai": ["onnxruntime-genai>=0.18"],
        "litertlm": ["litert-lm>=0.18.1", "litert-lm-builder>=0.18.1"],
        "qnn": ["onnxruntime-qnn>=2.7,<3"],
        "openvino": ["openvino>=2026.4"],
        "coreml": ["coremltools>=9,<10"],
        "micro": MICRO,
        "ethos-u": [*MICRO, *ETHOS_U],
        "strings": ["onnxruntime-extensions>=0.15,<1"],
        "mediapipe": ["mediapipe>=1.2.2,<2"],
        "test": [
            *DEMO,
            *METRICS,
            *CHAT,
            *GRAMMAR,
            *GGUF,
            *HTTP,
            *GRPC,
            *VISION,
            *AUDIO,
            *MICRO,
            *ETHOS_U,
            "pytest>=8,<9.2",  # From 9.2 on pytest-xdist 3.8 does not see groups.
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.6",
            "ruff>=0.8",
            "pyright[nodejs]>=1.1.400,<2",
            "mypy>=1.15,<3",
            "jax>=0.10",
            *ORBAX,
            "keras-hub>=0.32",
            "faiss-cpu>=1.12,<2",
            "bm25s>=0.3,<0.4",
            "protobuf>=7.36,<8",
            "setuptools>=65",
            "kubernetes-validate>=1.37,<2",
            "pyyaml>=6.0.2,<7",
            "jsonschema>=4.20,<5",
        ],
        "benchmark": [
            "keras-hub>=0.32",
            "torch>=2.13",
            "transformers>=5",
            "performer-pytorch>=1.1.4",
            "linear-attention-transformer>=0.19.1",
            "linformer>=0.2.3",
            "h5py>=3.11",
            "lz4>=4.4",
            "flax>=0.12",
            "optax>=0.2.5",
        ],
    },
    entry_points={"console_scripts": ["keras-transformer=keras_transformer.export.commands.main:main"]},
)
