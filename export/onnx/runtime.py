"""ONNX Runtime on the CPU."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.bundle.file_names import file_names
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.onnx.weights.external_data import check_external_data
from keras_transformer.export.runtime.cancellation import is_stoppable, stoppable
from keras_transformer.export.runtime.libraries import ONNX, ONNX_RUNTIME

if TYPE_CHECKING:
    import onnxruntime


def onnx_session(path: str, num_threads: int, keeps_spinning: bool = True) -> onnxruntime.InferenceSession:
    """A session of ONNX Runtime on the CPU. Several threads may run it at once.

    Args:
        path: path of the file. It is checked first: see `check_external_data`.
        num_threads: threads for one call.
        keeps_spinning: bool. Whether the threads spin for a while after a call, so that the next starts at once.

    Raises:
        MissingLibraryError: ONNX Runtime is not installed.
        ValueError: weights of the file are outside its folder.
    """
    with ONNX_RUNTIME.required_by(f"backend '{ONNX}'"):
        import onnxruntime

    check_external_data(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1  # Operations run one after another, each on all threads.
    options.log_severity_level = 4  # Errors are raised, not printed.
    options.add_session_config_entry("session.load_model_format", "ONNX")  # Only that is checked, not ORT's own format.
    # Products of uint8 and int8 are exact on processors without VNNI too; with VNNI, the option would double their time.
    options.add_session_config_entry("session.x64quantprecision", "0" if has_exact_products(_flags()) else "1")
    # Activations that a file has in float or in 16 bits are not rounded to 8 where a dequantized weight is multiplied.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if not keeps_spinning:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def has_exact_products(flags: Collection[str]) -> bool:
    """Whether a processor adds products of uint8 and int8 in 32 bits, in the kernels that ONNX Runtime chooses for it.

    Args:
        flags: its features, as Linux names them.

    Example:

    >>> has_exact_products({"avx2", "avx_vnni"}), has_exact_products({"avx2", "avx512bw"})
    (True, False)
    """
    return ("avx512_vnni" if "avx512bw" in flags else "avx_vnni") in flags


@functools.cache
def _flags() -> frozenset[str]:
    """The features of the processor; none where they are not known."""
    try:
        return frozenset(pathlib.Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return frozenset()


def written_in_place(inputs: Iterable[ArraySpec]) -> set[str]:
    """The inputs of a step that its outputs of the same name overwrite: those that have a slot for each token.

    A state of fixed size has other readers than the node that writes it, which therefore needs its own memory.
    """
    return {each.name for each in inputs if "cache_length" in each.axes}


class OnnxRuntime:
    """One signature in ONNX Runtime, under the names of the file; see `Runtime`.

    Caches are written in place, as by the steps of a language model: operators may leave what is behind the last filled
    slot of a new cache undefined.
    """

    def __init__(self, directory: pathlib.Path, manifest: Manifest, signature: str, num_threads: int) -> None:
        path = manifest.path(directory, ONNX, signature)
        self._session = onnx_session(str(path), num_threads)
        self._outputs = [each.name for each in self._session.get_outputs()]
        (inputs, outputs), names = manifest.signature(signature), file_names(manifest, ONNX, signature)
        caches = written_in_place(inputs) & {each.name for each in outputs}
        self._caches = {names.outputs[name]: names.inputs[name] for name in sorted(caches)}

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        results: list[np.ndarray] = self._bound(arrays) if self._caches else self._run(arrays)
        return dict(zip(self._outputs, results, strict=True))

    def _run(self, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
        if not is_stoppable():
            return list(self._session.run(None, arrays))
        import onnxruntime

        options = onnxruntime.RunOptions()
        with stoppable(lambda: setattr(options, "terminate", True)):
            return list(self._session.run(None, arrays, options))

    def _bound(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        from onnxruntime import OrtValue

        # Values share the memory of their arrays, which are not to change.
        values = {name: OrtValue.ortvalue_from_numpy(np.array(array, order="C")) for name, array in arrays.items()}
        binding = self._session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            if name in self._caches:
                binding.bind_ortvalue_output(name, values[self._caches[name]])
            else:
                binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        return [each.numpy().copy() for each in binding.get_outputs()]  # Their memory is the binding's.
