"""Loading a bundle. ONNX and TFLite need only numpy and their runtime; neither TensorFlow nor Keras is imported."""

from __future__ import annotations

import os
import pathlib
import time
from typing import TYPE_CHECKING, Any

from keras_transformer.export.bundle.file_names import file_names
from keras_transformer.export.bundle.manifest import check_hashes, read_manifest
from keras_transformer.export.bundle.preprocessing import read_vocabularies
from keras_transformer.export.bundle.tokenizers import read_tokenizer
from keras_transformer.export.data.manifest import FILE
from keras_transformer.export.errors import ExportError, InvalidBundleError
from keras_transformer.export.formats import chosen_backend, files_of, format_with, get_format
from keras_transformer.export.runtime.preprocessing import preprocessed_runtime, preprocessor
from keras_transformer.export.runtime.runtime import named_runtime
from keras_transformer.export.runtime.runtime_model import RuntimeModel
from keras_transformer.export.runtime.weight_folder import WeightFolder, weight_folder
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from keras_transformer.export.data.manifest import Manifest
    from keras_transformer.export.loading.isolated.isolation import Isolation
    from keras_transformer.export.loading.isolated.model import IsolatedLanguageModel
    from keras_transformer.export.loading.language_runtime import RuntimeLanguageModel

SERVE = "serve"
# How often a load begins again because the bundle was replaced meanwhile, and the pause before.
_MOST_SWAPS, _SWAP_S = 5, 0.05


def load(
    bundle: Path,
    backend: str | None = None,
    signature: str | None = None,
    num_threads: int | None = None,
    check: bool = True,
    isolated: bool | Isolation = False,
    check_domain: bool = False,
    weight_cache: Path | bool | None = None,
) -> Any:
    """Loads one artifact of a bundle in its own runtime.

    The model may be called from several threads, and from `asyncio` through `asyncio.to_thread`: ONNX Runtime and
    TensorFlow compute in parallel, TFLite one call after another.

    Args:
        bundle: path of the bundle directory.
        backend: a key of `FORMATS`: `"onnx"`, `"tflite"`, `"saved_model"` or `"openvino"`. None for the first of these, in
            this order, that the bundle has and whose runtime is installed.
        signature: name of the signature. None for the whole model: a language model that generates, or `"serve"`.
        num_threads: int >= 1: threads for one call; every core when None. TensorFlow has one setting for the whole process
            and takes it before its first use only, so the `"saved_model"` backend ignores it after that.
        check: bool. Whether the files are compared with their hashes, about a second for a gigabyte; their presence and
            sizes are always checked. Default True.
        isolated: bool or `Isolation`. Whether the files are opened in a process of their own, for bundles that are not
            trusted: a call whose process crashes, or exceeds the limits of `Isolation`, raises `RunError`. Calls run one
            after another. A language model has `generate` there, without `stream`. Default False.
        check_domain: bool. Whether a call with values or sizes beyond those on which the export compared the files with the
            Keras model is warned of, once; see "domain" in the manifest. A language model that generates is not checked.
            Default False.
        weight_cache: path of a folder, into which LiteRT writes the weights of signatures of fixed shapes in the order in
            which it reads them, once: all processes share them, and they take no memory of their own. None for
            `BUNDLE.weight_cache` beside the bundle, for TFLite files of 64 MB and more; False to keep them in memory, as
            happens where the folder cannot be written. The folder may be deleted; an isolated model has none.

    Returns:
        A `RuntimeModel`: call it as the Keras model is called, with arrays, lists, tuples or dicts of them, or arrays by
        name; or with texts where the bundle has a tokenizer. It returns a dict of numpy arrays, with the same keys in the
        same order for every backend: the model's. For a language model a `RuntimeLanguageModel`, which has `generate` and
        `stream`.

    Raises:
        InvalidBundleError: there is no bundle, a file of it is missing, altered or unreadable, or it has no such artifact
            or signature.
        UnknownFormatError: no such backend.
        MissingLibraryError: the runtime, or a library of the tokenizer, is not installed.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> from keras_transformer.export import export, load
    >>> network = keras.Sequential([keras.Input((4,), name="x"), keras.layers.Dense(2)])
    >>> report = export(network, "/tmp/keras_transformer_doctest", formats=["onnx"])
    >>> model = load("/tmp/keras_transformer_doctest", backend="onnx")
    >>> model(x=np.ones((3, 4)))["output"].shape
    (3, 2)
    """
    arguments = (backend, signature, num_threads, check, isolated, check_domain, weight_cache)
    for _ in range(_MOST_SWAPS):
        before = _identity(pathlib.Path(bundle))
        try:
            return _load(bundle, *arguments)
        except (InvalidBundleError, FileNotFoundError):
            if _identity(pathlib.Path(bundle)) == before:
                raise
        time.sleep(_SWAP_S)  # Another process replaced the bundle while it was read.
    return _load(bundle, *arguments)


def _identity(directory: pathlib.Path) -> tuple[int, ...] | None:
    """What changes when a bundle is replaced by another one; None while there is none."""
    try:
        folder, manifest = directory.stat(), (directory / FILE).stat()
    except OSError:
        return None
    return folder.st_ino, manifest.st_ino, manifest.st_ctime_ns, manifest.st_size


def _load(
    bundle: Path,
    backend: str | None,
    signature: str | None,
    num_threads: int | None,
    check: bool,
    isolated: bool | Isolation,
    check_domain: bool,
    weight_cache: Path | bool | None,
) -> RuntimeModel | RuntimeLanguageModel | IsolatedLanguageModel:
    """`load`, once."""
    if backend is not None:
        get_format(backend)
    num_threads = available_cores() if num_threads is None else num_threads
    if not isinstance(num_threads, int) or isinstance(num_threads, bool) or num_threads < 1:
        raise ExportError(f"num_threads must be a positive integer or None. Received: {num_threads!r}")
    directory = pathlib.Path(bundle)
    try:
        manifest = read_manifest(directory)
        model: RuntimeModel | RuntimeLanguageModel | IsolatedLanguageModel
        backend = chosen_backend(manifest, backend)
        if isolated is not False:
            from keras_transformer.export.loading.isolated.model import open_isolated

            signature = _whole_or_first(manifest, signature)
            arguments = {"bundle": directory.resolve(), "backend": backend, "signature": signature}
            arguments |= {"num_threads": num_threads, "check": check, "weight_cache": False}
            model = open_isolated(directory, manifest, arguments, isolated)
        else:
            if check:
                check_hashes(directory, manifest, files_of(manifest, backend))
            if backend in manifest.artifacts:
                get_format(backend).check_listed(directory, manifest)
            signature = _whole_or_first(manifest, signature)
            weights = _weight_folder(directory, backend, weight_cache, check)
            model = _open(directory, manifest, backend, signature, num_threads, weights)
        if check_domain and isinstance(model, RuntimeModel) and signature is not None:
            model.check_domain(manifest.domain.get(signature))
        return model
    except (ExportError, ImportError):
        raise
    except library_exceptions() as error:
        raise InvalidBundleError(
            f"{backend or 'the'} artifact of '{bundle}' cannot be loaded: {one_line(error)}"
        ) from error


def _weight_folder(
    directory: pathlib.Path, backend: str, chosen: Path | bool | None, check: bool
) -> WeightFolder | None:
    """The folder for packed weights, where one is asked for or the runtime of a backend fills one."""
    found = weight_folder(directory, chosen, check)
    return found if chosen is not None or get_format(backend).packs_weights else None


def _whole_or_first(manifest: Manifest, signature: str | None) -> str | None:
    """The signature to open; None for a whole language model."""
    if signature is None and manifest.generation is not None:
        from keras_transformer.export.runtime.generation_record import is_language_bundle

        if is_language_bundle(manifest):
            return None
    return signature or (SERVE if SERVE in manifest.signatures else next(iter(manifest.signatures)))


def _open(
    directory: pathlib.Path,
    manifest: Manifest,
    backend: str,
    signature: str | None,
    num_threads: int,
    weights: WeightFolder | None,
) -> RuntimeModel | RuntimeLanguageModel:
    if signature is None:
        from keras_transformer.export.loading.language_runtime import open_language_model

        return open_language_model(directory, manifest, backend, num_threads, weights)
    model = open_artifact(directory, manifest, backend, signature, num_threads, weights)
    model.keep_state(manifest.states.get(signature, ()))
    model.draw(manifest.draws.get(signature, {}))
    model.use_labels()
    model.tokenizer = read_tokenizer(directory, manifest)
    model.tokenizer_options = {} if manifest.tokenizer is None else manifest.tokenizer.options
    return model


def open_artifact(
    directory: pathlib.Path,
    manifest: Manifest,
    backend: str,
    signature: str,
    num_threads: int | None = None,
    weights: WeightFolder | None = None,
) -> RuntimeModel:
    """`load` with a manifest that has been read; errors of the runtime are raised as they are."""
    inputs, outputs = manifest.signature(signature)
    runtime = format_with(backend, weights).open(directory, manifest, signature, num_threads or available_cores())
    runtime = named_runtime(runtime, file_names(manifest, backend, signature))
    preprocessing = manifest.artifact(backend).preprocessing.get(signature)
    if preprocessing is not None:
        vocabularies = read_vocabularies(pathlib.Path(directory), preprocessing.paths)
        runtime = preprocessed_runtime(runtime, preprocessor(preprocessing, vocabularies))
    model = RuntimeModel(runtime, inputs, outputs, (backend, signature), directory)
    model.axis_limits = manifest.axis_limits
    model.metadata = manifest.metadata
    return model


def available_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
