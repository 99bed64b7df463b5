"""OpenVINO on the CPU."""

from __future__ import annotations

import functools
import pathlib
import threading
from typing import Any

import numpy as np

from keras_transformer.export.bundle.file_names import file_names
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.openvino.library import DEVICE, NAME, SUFFIX, openvino
from keras_transformer.export.runtime.generation_steps import RuntimeSteps
from keras_transformer.export.runtime.runtime import Runtime, named_runtime
from keras_transformer.utils.types import Cache


def compiled_model(path: pathlib.Path, num_threads: int) -> Any:
    """An IR that OpenVINO compiled for the CPU, computed in float32.

    Args:
        path: path of the `.xml` file.
        num_threads: threads for one call.

    Returns:
        `openvino.CompiledModel`.

    Raises:
        MissingLibraryError: OpenVINO is not installed.
        ValueError: it is a file of another format, which OpenVINO would read too.
    """
    library = openvino()
    if path.suffix != SUFFIX:
        raise ValueError(f"'{path.name}' is not an {SUFFIX} file")
    options = {
        "INFERENCE_PRECISION_HINT": "f32",  # Processors with bfloat16 or float16 would compute in it.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,  # Activations that a file has in float are not rounded to 8 bits.
        "INFERENCE_NUM_THREADS": num_threads,
        "NUM_STREAMS": 1,
    }
    return library.Core().compile_model(path, DEVICE, options)


class OpenVINORuntime:
    """One signature in OpenVINO, under the names of the file; see `Runtime`. Each thread has a request of its own."""

    def __init__(self, directory: pathlib.Path, manifest: Manifest, signature: str, num_threads: int) -> None:
        self._model = compiled_model(manifest.path(directory, NAME, signature), num_threads)
        # A port has the name of the file, and others that OpenVINO joined with its tensor.
        self._inputs = {name for port in self._model.inputs for name in port.get_names()}
        numbers = {name: number for number, port in enumerate(self._model.outputs) for name in port.get_names()}
        labels = file_names(manifest, NAME, signature).outputs.values()
        self._outputs = {label: numbers[label] for label in labels}
        self._threads = threading.local()

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        given = {name: array for name, array in arrays.items() if name in self._inputs}
        results = self._request.infer(given, share_inputs=True)
        return {label: results[number] for label, number in self._outputs.items()}

    @property
    def _request(self) -> Any:
        if not hasattr(self._threads, "request"):
            self._threads.request = self._model.create_infer_request()
        return self._threads.request


class OpenVINOSteps(RuntimeSteps):
    """Steps in OpenVINO; see `RuntimeSteps`."""

    def __init__(self, directory: pathlib.Path, manifest: Manifest, backend: str, num_threads: int) -> None:
        super().__init__(directory, manifest, backend, num_threads)
        self._lock = threading.Lock()
        self._opened = functools.cache(lambda signature: _named(directory, manifest, signature, num_threads))

    def open_first(self) -> None:
        self._runtime("encode" if self.spec.is_encoder_decoder else "prefill")

    def _call(self, signature: str, arrays: dict[str, np.ndarray], cache: Cache) -> dict[str, np.ndarray]:
        return self._runtime(signature)({**arrays, **cache})

    def _runtime(self, signature: str) -> Runtime:
        with self._lock:
            return self._opened(signature)


def _named(directory: pathlib.Path, manifest: Manifest, signature: str, num_threads: int) -> Runtime:
    """A signature under its own names."""
    runtime = OpenVINORuntime(directory, manifest, signature, num_threads)
    return named_runtime(runtime, file_names(manifest, NAME, signature))
