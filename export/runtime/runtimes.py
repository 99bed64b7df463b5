"""The runtimes. Each engine maps a dict of checked arrays to a dict of arrays; several threads may call one at once."""

import contextlib
import sys
import threading

import numpy as np

from keras_transformer.export.errors import MissingLibraryError
from keras_transformer.export.onnx.external_data import check_external_data
from keras_transformer.export.tflite.flatbuffer_check import check_flatbuffer
from keras_transformer.utils.captured_stderr import captured_stderr

# What each needs to be installed, by the name of the module and that under which pip knows it.
LIBRARIES = {
    "onnx": ("onnxruntime", "onnxruntime"),
    "tflite": ("ai_edge_litert", "ai-edge-litert"),
    "saved_model": ("tensorflow", "tensorflow"),
}


@contextlib.contextmanager
def needs_library(backend):
    """Turns a failed import into an error that says what to install."""
    module, name = LIBRARIES[backend]
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module:
            raise
        raise MissingLibraryError(f"backend '{backend}'", name) from error


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


def onnx_session(path, num_threads, waits=True):
    """A session of ONNX Runtime on the CPU. Several threads may run it at once.

    Args:
        path: of the file.
        num_threads: int.
        waits: bool. Whether its threads keep their cores busy for a while after a call, so that the next starts at once.
    """
    with needs_library("onnx"):
        import onnxruntime

    check_external_data(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1  # Ops run one after another, each on all threads.
    options.log_severity_level = 3
    if not waits:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class OnnxEngine:
    """ONNX Runtime on the CPU."""

    def __init__(self, path, signature, outputs, num_threads):
        self._session = onnx_session(path, num_threads)
        self._outputs = outputs

    def __call__(self, arrays):
        return dict(zip(self._outputs, self._session.run(None, arrays), strict=True))  # by position, see onnx.py


class TFLiteEngine:
    """LiteRT's interpreter without delegates for foreign ops.

    An interpreter computes in place, so calls from several threads wait for each other. Where they must not, `load` once
    for each thread: every interpreter has working memory and packed weights of its own.
    """

    def __init__(self, path, signature, outputs, num_threads):
        with needs_library("tflite"):
            from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(model_path=path, num_threads=num_threads)
        check_flatbuffer(path)
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
        with needs_library("saved_model"):
            import tensorflow as tf

        with contextlib.suppress(RuntimeError):  # TensorFlow runs already and keeps the threads it has
            tf.config.threading.set_intra_op_parallelism_threads(num_threads)
            tf.config.threading.set_inter_op_parallelism_threads(num_threads)
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
        self._loaded = load_saved_model(path, num_threads)
        import tensorflow as tf

        self._function = self._loaded.signatures[signature]
        self._convert = tf.convert_to_tensor

    def __call__(self, arrays):
        outputs = self._function(**{name: self._convert(array) for name, array in arrays.items()})
        return {name: _as_text(tensor.numpy()) for name, tensor in outputs.items()}


ENGINES = {"saved_model": SavedModelEngine, "tflite": TFLiteEngine, "onnx": OnnxEngine}
