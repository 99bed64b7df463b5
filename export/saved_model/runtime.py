"""TensorFlow as the runtime of SavedModels: single signatures, and the steps of a language model."""

import contextlib
import os
import pathlib
import weakref
from typing import Any

import numpy as np

from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import ExportError
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.runtime.generation_steps import RuntimeSteps
from keras_transformer.export.runtime.libraries import SAVED_MODEL, TENSORFLOW
from keras_transformer.export.saved_model.graph_check import FILE, check_saved_model
from keras_transformer.utils.captured_stderr import captured_stderr
from keras_transformer.utils.types import Cache

# The process in which this package began to use TensorFlow, whose threads do not exist in one that is forked from it.
_user: int | None = None


def check_process() -> None:
    """Refuses the use of TensorFlow in a process that was forked from one that used it.

    Raises:
        ExportError: this is such a process.
    """
    global _user
    if _user is None:
        _user = os.getpid()
    if _user != os.getpid():
        raise ExportError(
            "a SavedModel was loaded before this process was forked, and TensorFlow does not run in it", Remedy.PROCESS
        )


def load_saved_model(path: str, num_threads: int) -> Any:
    """A loaded SavedModel, checked before it is loaded; what TensorFlow prints on stderr while it starts is dropped.

    Args:
        path: path of the folder.
        num_threads: threads of the process; without effect once TensorFlow runs.

    Raises:
        MissingLibraryError: TensorFlow is not installed.
        InvalidBundleError: it is damaged, or would do more than compute: see `check_saved_model`.
        ExportError: TensorFlow was used before this process was forked.
    """
    check_process()
    with captured_stderr():
        with TENSORFLOW.required_by(f"backend '{SAVED_MODEL}'"):
            import tensorflow as tf

        with contextlib.suppress(RuntimeError):  # TensorFlow runs already and keeps its threads.
            tf.config.threading.set_intra_op_parallelism_threads(num_threads)
            tf.config.threading.set_inter_op_parallelism_threads(num_threads)
        try:
            return _loaded(path)
        except (
            FileNotFoundError,
            RuntimeError,
            tf.errors.NotFoundError,
        ) as error:  # Which one depends on the operation.
            if "Op type not registered" not in str(error):
                raise
            import tensorflow_text  # noqa: F401 The tokenizer in the graph uses operations that this import registers.

            return _loaded(path)


_LOADED: weakref.WeakValueDictionary[tuple[str, int, int, int], object] = weakref.WeakValueDictionary()


def _loaded(path: str) -> Any:
    """The SavedModel, which all its signatures share while one of them is in use."""
    import tensorflow as tf

    file = pathlib.Path(path, FILE).stat()
    key = path, file.st_ino, file.st_mtime_ns, file.st_size
    found = _LOADED.get(key)
    if found is None:
        check_saved_model(pathlib.Path(path))
        _LOADED[key] = found = tf.saved_model.load(path)
    return found


class SavedModelRuntime:
    """One signature in TensorFlow; see `Runtime`."""

    def __init__(self, directory: pathlib.Path, manifest: Manifest, signature: str, num_threads: int) -> None:
        path = manifest.path(directory, SAVED_MODEL, signature)
        self._loaded = load_saved_model(str(path), num_threads)  # The functions do not keep their variables alive.
        import tensorflow as tf

        self._function = self._loaded.signatures[signature]
        self._convert = tf.convert_to_tensor

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        check_process()
        outputs = self._function(**{name: self._convert(array) for name, array in arrays.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}


class SavedModelSteps(RuntimeSteps):
    """Steps in TensorFlow; the cache stays in its tensors. See `RuntimeSteps`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._loaded = load_saved_model(str(self._path("prefill")), self._num_threads)

    def _call(self, signature: str, arrays: dict[str, np.ndarray], cache: Cache) -> dict[str, np.ndarray]:
        check_process()
        import tensorflow as tf

        tensors = {name: tf.convert_to_tensor(array) for name, array in {**arrays, **cache}.items()}
        return self._loaded.signatures[signature](**tensors)
