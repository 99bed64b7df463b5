"""LiteRT's interpreter."""

import contextlib
import pathlib
import threading
from typing import Any

import numpy as np

from keras_transformer.export.bundle.manifest import artifact_path, signature_specs
from keras_transformer.export.runtime.runtime import Runtime
from keras_transformer.export.tflite.flatbuffer_check import check_flatbuffer
from keras_transformer.export.tflite.library import LIBRARY, NAME
from keras_transformer.export.tflite.signature_choice import fitting_signature
from keras_transformer.utils.captured_stderr import captured_stderr


class TFLiteRuntime:
    """All signatures of a file in LiteRT's interpreter, without delegates for operations of other libraries.

    An interpreter has one set of buffers, so that calls from several threads run one after another. To run them in parallel,
    `load` once for each thread: every interpreter has its own working memory and packed weights.

    Args:
        path: path of the file. It is checked before anything runs: see `check_flatbuffer`.
        signature: name of the signature that a call runs.
        num_threads: threads for one call.

    Raises:
        MissingLibraryError: LiteRT is not installed.
        ValueError: the file is damaged.
    """

    def __init__(self, path: str, signature: str, num_threads: int) -> None:
        with LIBRARY.required_by(f"backend '{NAME}'"):
            from ai_edge_litert.interpreter import Interpreter

        # LiteRT 2.1 to 2.3 moves operators together for its delegates. Among tensors of dynamic shapes it then reads memory
        # that was freed: a call computes wrong values, mostly the second one of the same shapes.
        options = {"num_threads": num_threads, "experimental_disable_delegate_clustering": True}
        self._interpreter = Interpreter(model_path=path, **options)  # Verifies the flatbuffer itself.
        check_flatbuffer(path)
        self._runners: dict[str, Any] = {}
        self._signature = signature
        self._lock = threading.Lock()
        self._output_context: Any = captured_stderr  # XNNPACK writes a line on stderr in the first call.

    def signatures(self) -> list[str]:
        """Names of all signatures in the file."""
        return list(self._interpreter.get_signature_list())

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.call(self._signature, arrays)

    def call(self, signature: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs any signature of the file."""
        with self._lock, self._output_context():
            self._output_context = contextlib.nullcontext
            if signature not in self._runners:
                self._runners[signature] = self._interpreter.get_signature_runner(signature)
            return self._runners[signature](**arrays)


def fitting_runtime(directory: pathlib.Path, manifest: dict[str, Any], signature: str, num_threads: int) -> Runtime:
    """A runtime that runs the copy of a signature for exactly these shapes, where the file has one."""
    path = artifact_path(directory, manifest, NAME, signature)
    runtime = TFLiteRuntime(str(path), signature, num_threads)
    names = manifest["artifacts"][NAME]["signatures"]
    copies = {name: signature_specs(manifest, name)[0] for name in names if name.startswith(f"{signature}_")}
    return lambda arrays: runtime.call(fitting_signature(copies, signature, arrays), arrays)
