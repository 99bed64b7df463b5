"""Running a bundle. ONNX and TFLite need numpy and their runtime alone: neither TensorFlow nor Keras is imported."""

import os
import pathlib

import numpy as np

from keras_transformer.export.bundle.manifest import (
    artifact_path,
    check_hashes,
    files_of,
    read_manifest,
    signature_specs,
)
from keras_transformer.export.bundle.tokenizers import encode_texts, read_tokenizer
from keras_transformer.export.errors import (
    ExportError,
    InputError,
    InvalidBundleError,
    RunError,
    UnknownFormatError,
    one_line,
)
from keras_transformer.export.runtime.inputs import check_inputs, check_outputs
from keras_transformer.export.runtime.runtimes import ENGINES, full_precision

__all__ = ["ENGINES", "SERVE", "RuntimeModel", "check_inputs", "full_precision", "load", "open_artifact"]

SERVE = "serve"


def load(bundle, backend="onnx", signature=None, num_threads=None, check=True):
    """Loads one artifact of a bundle in its own runtime.

    What it gives may be called from several threads, and from `asyncio` through `asyncio.to_thread`: ONNX Runtime and
    TensorFlow compute side by side, TFLite one call after another.

    Args:
        bundle: path of the bundle directory.
        backend: `"onnx"`, `"tflite"` or `"saved_model"`. Default `"onnx"`.
        signature: name of the signature. None for the whole model: a language model that generates, or `"serve"`.
        num_threads: int >= 1: threads for one call; every core when None. TensorFlow has one setting for the whole process
            and takes it before its first use only, so the `"saved_model"` backend ignores it after that.
        check: bool. Whether the files are compared with their hashes, about a second for a gigabyte; their presence and
            sizes always are. Default True.

    Returns:
        A `RuntimeModel`: call it with arrays by name, or with texts where the bundle has a tokenizer, and get a dict of
        numpy arrays. For a language model a `RuntimeLanguageModel`, which has `generate` and `stream`.

    Raises:
        InvalidBundleError: no bundle there, a file of it missing, altered or unreadable, or no such artifact or signature.
        UnknownFormatError: no such backend.
        MissingLibraryError: the runtime, or what the tokenizer needs, is not installed.

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
    if backend not in ENGINES:
        raise UnknownFormatError(backend, ENGINES)
    num_threads = _cores() if num_threads is None else num_threads
    if not isinstance(num_threads, int) or isinstance(num_threads, bool) or num_threads < 1:
        raise ExportError(f"num_threads must be a positive integer or None. Received: {num_threads!r}")
    directory = pathlib.Path(bundle)
    try:
        manifest = read_manifest(directory)
        if check:
            check_hashes(directory, manifest, files_of(manifest, backend))
        return _open(directory, manifest, backend, signature, num_threads)
    except (ExportError, ImportError):
        raise
    except Exception as error:
        raise InvalidBundleError(f"{backend} artifact of '{bundle}' cannot be loaded: {one_line(error)}") from error


def _open(directory, manifest, backend, signature, num_threads):
    if signature is None and manifest.get("generation") is not None:
        from keras_transformer.export.runtime.language_runtime import is_language_bundle, open_language_model

        if is_language_bundle(manifest):
            return open_language_model(directory, manifest, backend, num_threads)
    model = open_artifact(directory, manifest, backend, signature or SERVE, num_threads)
    model.tokenizer = read_tokenizer(directory, manifest)
    model.tokenizer_options = manifest.get("tokenizer", {}).get("options", {})
    return model


def open_artifact(directory, manifest, backend, signature, num_threads=None):
    """`load` for a manifest at hand; errors of the engine come through as they are."""
    inputs, outputs = signature_specs(manifest, signature)
    path = artifact_path(directory, manifest, backend, signature)
    engine = ENGINES[backend](str(path), signature, [spec.name for spec in outputs], num_threads or _cores())
    if backend == "tflite":
        engine = _with_fixed_shapes(engine, manifest, signature)
    return RuntimeModel(engine, inputs, outputs, (backend, signature), directory)


def _with_fixed_shapes(engine, manifest, signature):
    """The engine, that runs a copy of the signature for exactly the shapes at hand where the file has one."""
    from keras_transformer.export.tflite.signatures import fitting_signature

    names = manifest["artifacts"]["tflite"]["signatures"]
    copies = {name: signature_specs(manifest, name)[0] for name in names if name.startswith(f"{signature}_")}
    return lambda arrays: engine.call(fitting_signature(copies, signature, arrays), arrays)


def _cores():
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class RuntimeModel:
    """One signature of a bundle, ready to be called, from several threads too.

    Args:
        engine: maps a dict of checked arrays to a dict of arrays.
        inputs: tuple of `ArraySpec`.
        outputs: tuple of `ArraySpec`.
        origin: names of the backend and of the signature, for errors.
        directory: path of the bundle, for its probes.

    Call arguments:
        arrays: a dict of input name to array, or the array itself where the model has one input; or a text or a list of
            texts, where the bundle has a tokenizer.
        named: the same by keyword.

    Returns:
        Dict of output name to numpy array.

    Raises:
        InputError: an input is missing or unknown, or its dtype, rank or a fixed size is wrong, or two inputs disagree
            on the size of an axis they share.
        RunError: the runtime fails, or gives something else than the manifest says.
    """

    def __init__(self, engine, inputs, outputs, origin, directory):
        self._engine = engine
        self._origin = origin
        self._directory = directory
        self.inputs = inputs
        self.outputs = outputs
        self.tokenizer = None
        self.tokenizer_options = {}

    def __call__(self, arrays=None, **named):
        return self._run(self._read(arrays, named))

    def predict(self, arrays=None, *, batch_size=32, **named):
        """Calls the model with a few examples at a time, and joins what it gives.

        Args:
            arrays, named: as in a call, of any number of examples.
            batch_size: int >= 1: the most examples of one call. Default 32.

        Returns:
            Dict of output name to numpy array, of all examples.

        Raises:
            InputError: as in a call; or there is more than one batch, and an input or output without the axis `batch`
                that would have to be divided.
            RunError: the runtime fails.
        """
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            raise InputError("batch_size", "a positive integer", repr(batch_size))
        checked = self._read(arrays, named)
        places = {spec.name: spec.axes.index("batch") for spec in self.inputs if "batch" in spec.axes}
        total = next((checked[name].shape[place] for name, place in places.items()), 0)
        if total <= batch_size:
            return self._run(checked)
        joined = {spec.name: spec.axes.index("batch") for spec in self.outputs if "batch" in spec.axes}
        for spec in self.outputs:
            if spec.name not in joined:
                raise InputError("(batch)", f"at most {batch_size} at once: '{spec.name}' cannot be joined", str(total))
        pieces = []
        for start in range(0, total, batch_size):
            rows = np.arange(start, min(start + batch_size, total))
            pieces.append(self._run({**checked, **_taken(checked, places, rows)}))
        return {name: np.concatenate([piece[name] for piece in pieces], place) for name, place in joined.items()}

    def warm_up(self, **sizes):
        """Runs the model before it is needed: the first call of a shape prepares the others.

        Args:
            sizes: size by axis name, such as `batch=8, length=128`; those not named are as in a probe of the bundle.
                Without any, every probe is run.

        Returns:
            The model.

        Raises:
            InputError: no such axis.
            RunError: the runtime fails.
        """
        for arrays in [self.example(**sizes)] if sizes else [probe.inputs for probe in self._probes()]:
            self(arrays)
        return self

    def example(self, **sizes):
        """Valid inputs, from a probe of the bundle, in sizes by axis name.

        Returns:
            Dict of input name to numpy array.

        Raises:
            InputError: no such axis.
            InvalidBundleError: the bundle's probes cannot be read.
        """
        from keras_transformer.export.bundle.probe_files import resized_inputs

        return resized_inputs(self.inputs, self._probes()[0], sizes)

    def _probes(self):
        from keras_transformer.export.bundle.probe_files import read_probes

        probes = read_probes(self._directory, self._origin[1]).get(self._origin[1])
        if not probes:
            raise InvalidBundleError(f"the bundle has no probe of signature '{self._origin[1]}'")
        for probe in probes:
            check_inputs(self.inputs, probe.inputs)
        return probes

    def _read(self, arrays, named):
        if isinstance(arrays, str) or (isinstance(arrays, (list, tuple)) and arrays and isinstance(arrays[0], str)):
            arrays = encode_texts(arrays, self.tokenizer, self.tokenizer_options, self.inputs)
        if arrays is not None and not isinstance(arrays, dict):
            if len(self.inputs) != 1:
                names = ", ".join(spec.name for spec in self.inputs)
                raise InputError("(unnamed)", f"a dict with {names}", type(arrays).__name__)
            arrays = {self.inputs[0].name: arrays}
        return check_inputs(self.inputs, {**(arrays or {}), **named})

    def _run(self, arrays):
        try:
            return check_outputs(self.outputs, self._engine(arrays))
        except ExportError:
            raise
        except Exception as error:
            raise RunError(*self._origin, error) from error


def _taken(arrays, places, rows):
    return {name: np.ascontiguousarray(np.take(arrays[name], rows, axis=place)) for name, place in places.items()}
