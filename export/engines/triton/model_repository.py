"""Triton model repositories: `DIR/NAME/config.pbtxt` and `DIR/NAME/1/model.onnx`."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
from typing import TYPE_CHECKING, Any

from keras_transformer.export.bundle.manifest import check_hashes, read_manifest
from keras_transformer.export.bundle.probe_files import read_probes
from keras_transformer.export.bundle.writing import replacing
from keras_transformer.export.engines.triton.config import triton_models
from keras_transformer.export.errors import ExportError
from keras_transformer.export.formats import files_of
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.weights.external_data import weight_files
from keras_transformer.export.serving.batching import Batching

if TYPE_CHECKING:
    from keras_transformer.utils.types import Path


CONFIG, FILE = "config.pbtxt", "model.onnx"


def write_triton(
    bundle: Path,
    directory: Path,
    *,
    name: str | None = None,
    version: int = 1,
    batching: Batching | None = None,
    max_length: int | None = None,
) -> list[pathlib.Path]:
    """Writes the ONNX files of a bundle as models of a Triton model repository, each with its `config.pbtxt`.

    A bundle of one signature becomes the model NAME, of several the models NAME_SIGNATURE. Requests of equal shapes are
    batched if all inputs and outputs have `batch` as their first axis. Signatures with scalars are omitted, because Triton
    does not support them.

    A decoder becomes one model NAME with a server-side cache: a client starts a sequence with the tokens of its prompt and
    `cache_index` 0, and continues with one or more tokens and the number of tokens before. An encoder-decoder becomes the
    models NAME_encode, NAME_prefill and NAME_decode, and the client passes the cache between them.

    The models appear in the repository after all of them are verified against the Keras model.

    Args:
        bundle: path of a bundle with ONNX files.
        directory: path of the repository; created if necessary. Other models in it are not changed.
        name: str of letters, digits, `_`, `-` and `.`: name of the model. None for the name of the bundle's folder.
        version: int >= 1. An existing version of the model must have the same configuration. Default 1.
        batching: `Batching`, or None for its defaults.
        max_length: int >= 2: largest number of tokens of a text, the size of the cache of a sequence. None for that of the
            model, or 512 if it is unlimited.

    Returns:
        List of `pathlib.Path`: the folders of the versions.

    Raises:
        InvalidBundleError: no bundle there, or one without ONNX files.
        ExportError: the version exists already, a name or figure that cannot be, a model there with another configuration,
            or nothing in the bundle that Triton can serve.
        ParityError: a file does not compute what the Keras model computed.

    Example:

    >>> import keras, shutil
    >>> from keras_transformer.export import export, write_triton
    >>> model = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(2)])
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["onnx"])
    >>> shutil.rmtree("/tmp/keras_transformer_triton", ignore_errors=True)
    >>> paths = write_triton("/tmp/keras_transformer_doctest", "/tmp/keras_transformer_triton", name="scores")
    >>> print((paths[0].parent / "config.pbtxt").read_text()[:57], end="")
    name: "scores"
    backend: "onnxruntime"
    max_batch_size: 32
    """
    manifest = read_manifest(bundle)
    manifest.artifact(ONNX.name)  # Raises where there is none.
    root, name = pathlib.Path(directory).resolve(), name or pathlib.Path(bundle).resolve().name
    _check(name, version)
    batching = batching or Batching()
    models = triton_models(bundle, manifest, name, batching, max_length)
    targets = [_target(root / each.name, version, each.config) for each in models]
    check_hashes(bundle, manifest, files_of(manifest, ONNX.name))
    probes = read_probes(bundle)
    with contextlib.ExitStack() as stack:
        weights: dict[Any, Any] = {}
        for model, target in zip(models, targets, strict=True):
            work = stack.enter_context(replacing(target))
            folder_of_version = work
            if target.name == model.name:  # A new model, not a version of one that is there.
                (work / CONFIG).write_text(model.config, encoding="utf-8")
                folder_of_version = work / str(version)
                folder_of_version.mkdir()
            _copy(model.source, folder_of_version, weights)
            model.prove(folder_of_version / FILE, probes)
    return [root / each.name / str(version) for each in models]


def _check(name: str, version: int) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or name.startswith("."):
        raise ExportError(f"the name of a model is of letters, digits, '_', '-' and '.', not '{name}'")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ExportError(f"version must be a positive integer. Received: {version!r}")


def _target(folder: pathlib.Path, version: int, config: str) -> pathlib.Path:
    """The folder that is created atomically: that of the model, or of a further version."""
    target = folder / str(version)
    if target.exists() or target.is_symlink():
        raise ExportError(f"version {version} exists already: '{target}'")
    if not folder.exists():
        return folder
    there = folder / CONFIG
    if not there.is_file() or there.read_text(encoding="utf-8") != config:
        raise ExportError(f"'{folder}' contains a model with another configuration: choose another name")
    return target


def _copy(source: pathlib.Path, folder_of_version: pathlib.Path, weights: dict[str, pathlib.Path]) -> None:
    """Copies an ONNX file and its weights; hard links weights that several models share."""
    shutil.copyfile(source, folder_of_version / FILE)
    for name in weight_files(source):
        target = folder_of_version / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            if name in weights:
                target.hardlink_to(weights[name])
        if not target.exists():
            shutil.copyfile(source.parent / name, target)
        weights.setdefault(name, target)
