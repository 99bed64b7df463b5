"""Running a bundle. ONNX and TFLite need numpy and their runtime alone: neither TensorFlow nor Keras is imported."""

import contextlib
import os
import pathlib
import sys
import threading

import numpy as np

from keras_transformer.export.errors import InputError, InvalidBundleError, UnknownFormatError, one_line
from keras_transformer.export.manifest import artifact_path, read_manifest, signature_specs
from keras_transformer.export.quiet import captured_stderr
from keras_transformer.export.tokenizers import encode_texts

SERVE = "serve"


def load(bundle, backend="onnx", signature=None, num_threads=None):
    """Loads one artifact of a bundle in its own runtime.

    Args:
        bundle: path of the bundle directory.
        backend: `"onnx"`, `"tflite"` or `"saved_model"`. Default `"onnx"`.
        signature: name of the signature. None for the whole model: a language model that generates, or `"serve"`.
        num_threads: threads for one call; every core when None. TensorFlow has one setting for the whole process and
            takes it before its first use only, so the `"saved_model"` backend ignores it after that.

    Returns:
        A `RuntimeModel`: call it with arrays by name, or with texts where the bundle has a tokenizer, and get a dict of
        numpy arrays. For a language model a `RuntimeLanguageModel`, which has `generate` and `stream`.

    Raises:
        InvalidBundleError: no bundle there, a file of it missing or unreadable, or no such artifact or signature.
        UnknownFormatError: no such backend.

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
    directory = pathlib.Path(bundle)
    try:
        manifest = read_manifest(directory)
        return _open(directory, manifest, backend, signature, num_threads)
    except (InvalidBundleError, ImportError):
        raise
    except Exception as error:
        raise InvalidBundleError(f"{backend} artifact of '{bundle}' cannot be loaded: {one_line(error)}") from error


def _open(directory, manifest, backend, signature, num_threads):
    from keras_transformer.export.tokenizers import read_tokenizer

    if signature is None and manifest.get("generation") is not None:
        from keras_transformer.export.language_runtime import is_language_bundle, open_language_model

        if is_language_bundle(manifest):
            return open_language_model(directory, manifest, backend, num_threads or _cores())
    model = open_artifact(directory, manifest, backend, signature or SERVE, num_threads)
    model.tokenizer = read_tokenizer(directory, manifest)
    model.tokenizer_options = manifest.get("tokenizer", {}).get("options", {})
    return model


def open_artifact(directory, manifest, backend, signature, num_threads=None):
    """`load` for a manifest at hand; errors of the engine come through as they are."""
    inputs, outputs = signature_specs(manifest, signature)
    path = artifact_path(directory, manifest, backend, signature)
    engine = ENGINES[backend](str(path), signature, [spec.name for spec in outputs], num_threads or _cores())
    return RuntimeModel(engine, inputs, outputs)


def _cores():
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class RuntimeModel:
    """One signature of a bundle, ready to be called.

    Args:
        engine: maps a dict of checked arrays to a dict of arrays.
        inputs: tuple of `ArraySpec`.
        outputs: tuple of `ArraySpec`.

    Call arguments:
        arrays: a dict of input name to array, or the array itself where the model has one input; or a text or a list of
            texts, where the bundle has a tokenizer.
        named: the same by keyword.

    Returns:
        Dict of output name to numpy array.

    Raises:
        InputError: an input is missing or unknown, or its dtype, rank or a fixed size is wrong, or two inputs disagree
            on the size of an axis they share.
    """

    def __init__(self, engine, inputs, outputs):
        self._engine = engine
        self.inputs = inputs
        self.outputs = outputs
        self.tokenizer = None
        self.tokenizer_options = {}

    def __call__(self, arrays=None, **named):
        if isinstance(arrays, str) or (isinstance(arrays, (list, tuple)) and arrays and isinstance(arrays[0], str)):
            arrays = encode_texts(arrays, self.tokenizer, self.tokenizer_options, self.inputs)
        if arrays is not None and not isinstance(arrays, dict):
            if len(self.inputs) != 1:
                names = ", ".join(spec.name for spec in self.inputs)
                raise InputError("(unnamed)", f"a dict with {names}", type(arrays).__name__)
            arrays = {self.inputs[0].name: arrays}
        return self._engine(check_inputs(self.inputs, {**(arrays or {}), **named}))


def check_inputs(specs, arrays):
    """Arrays as the signature wants them.

    A cast is made when it loses nothing but the precision of a float: `float64` to `float32`, `int64` to `int32` when
    every value fits, `uint8` to `float32`, 0 and 1 to `bool`. Anything else is an error.

    Args:
        specs: tuple of `ArraySpec`.
        arrays: dict of name to array-like.

    Returns:
        Dict of name to contiguous numpy array.

    Raises:
        InputError: names the input, what was expected and what came.
    """
    for name in arrays:
        if name not in {spec.name for spec in specs}:
            raise InputError(name, f"one of {', '.join(spec.name for spec in specs)}", "an unknown name")
    checked, sizes = {}, {}
    for spec in specs:
        if spec.name not in arrays:
            raise InputError(spec.name, spec.describe(), "nothing")
        array = _as_array(spec, arrays[spec.name])
        _check_shape(spec, array, sizes)
        checked[spec.name] = _cast(spec, array)
    return checked


def _as_array(spec, value):
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(spec.name, spec.describe(), "a ragged list") from None
    if spec.dtype == "string" and array.dtype.kind in "US":
        return array
    if spec.dtype == "string" or array.dtype.kind not in "biuf":
        raise InputError(spec.name, spec.describe(), f"dtype {array.dtype}")
    return array


def _check_shape(spec, array, sizes):
    fits = array.ndim == len(spec.shape)
    for size, axis, got in zip(spec.shape, spec.axes, array.shape, strict=False):
        fits = fits and (got == size if axis is None else got == sizes.setdefault(axis, got))
    if not fits:
        known = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
        expected = spec.describe() + (f" with {known}" if array.ndim == len(spec.shape) and known else "")
        raise InputError(spec.name, expected, f"{array.dtype} {array.shape}")


def _cast(spec, array):
    if spec.dtype == "string":
        return array
    target = np.dtype(spec.dtype)
    if array.dtype != target:
        if array.dtype.kind == "f" and target.kind != "f":
            raise InputError(spec.name, spec.describe(), f"dtype {array.dtype}")
        with np.errstate(all="ignore"):
            cast = array.astype(target)
        if array.dtype.kind != "f" and not np.array_equal(cast.astype(array.dtype), array):
            raise InputError(spec.name, spec.describe(), f"{array.dtype} values that {target} cannot hold")
        array = cast
    return np.ascontiguousarray(array).reshape(array.shape)


@contextlib.contextmanager
def full_precision():
    """Keeps TensorFlow, where it is loaded, from rounding float32 products to TF32 on a GPU."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        yield
        return
    switch = tensorflow.config.experimental
    before = switch.tensor_float_32_execution_enabled()
    try:
        switch.enable_tensor_float_32_execution(False)
        yield
    finally:
        switch.enable_tensor_float_32_execution(before)


def onnx_session(path, num_threads):
    """A session of ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class OnnxEngine:
    """ONNX Runtime on the CPU."""

    def __init__(self, path, signature, outputs, num_threads):
        self._session = onnx_session(path, num_threads)
        self._outputs = outputs

    def __call__(self, arrays):
        return dict(zip(self._outputs, self._session.run(None, arrays), strict=True))  # by position, see onnx.py


class TFLiteEngine:
    """LiteRT's interpreter without delegates for foreign ops. Calls from several threads wait for each other."""

    def __init__(self, path, signature, outputs, num_threads):
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(model_path=path, num_threads=num_threads)
        self._runners = {}
        self._signature = signature
        self._lock = threading.Lock()
        self._announcements = captured_stderr  # XNNPACK announces itself in the first call

    def signatures(self):
        """Names of all signatures in the file."""
        return list(self._interpreter.get_signature_list())

    def __call__(self, arrays):
        return self.call(self._signature, arrays)

    def call(self, signature, arrays):
        """Runs any signature of the file."""
        with self._lock, self._announcements():
            self._announcements = contextlib.nullcontext
            if signature not in self._runners:
                self._runners[signature] = self._interpreter.get_signature_runner(signature)
            return self._runners[signature](**arrays)


def _as_text(array):
    """Strings, which TensorFlow gives as bytes, as text."""
    if array.dtype != object:
        return array
    return np.array([each.decode("utf-8") for each in array.ravel()], str).reshape(array.shape)


def load_saved_model(path, num_threads):
    """A SavedModel, loaded without TensorFlow's announcements."""
    with captured_stderr():
        import tensorflow as tf

        with contextlib.suppress(RuntimeError):  # TensorFlow runs already and keeps the threads it has
            tf.config.threading.set_intra_op_parallelism_threads(num_threads)
        try:
            return tf.saved_model.load(path)
        except (FileNotFoundError, tf.errors.NotFoundError) as error:
            if "Op type not registered" not in str(error):
                raise
            import tensorflow_text  # noqa: F401 A tokenizer lies in the file: its ops come with this import.

            return tf.saved_model.load(path)


class SavedModelEngine:
    """TensorFlow itself."""

    def __init__(self, path, signature, outputs, num_threads):
        import tensorflow as tf

        self._loaded = load_saved_model(path, num_threads)
        self._function = self._loaded.signatures[signature]
        self._convert = tf.convert_to_tensor

    def __call__(self, arrays):
        outputs = self._function(**{name: self._convert(array) for name, array in arrays.items()})
        return {name: _as_text(tensor.numpy()) for name, tensor in outputs.items()}


ENGINES = {"saved_model": SavedModelEngine, "tflite": TFLiteEngine, "onnx": OnnxEngine}
