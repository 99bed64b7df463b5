"""Prefill and decode steps of a language model in ONNX Runtime."""

from __future__ import annotations

import functools
import threading
from collections.abc import Collection, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.bundle.file_names import file_names
from keras_transformer.export.onnx.runtime import onnx_session, written_in_place
from keras_transformer.export.runtime.generation_steps import RuntimeSteps
from keras_transformer.utils.types import ArrayLike, Cache

if TYPE_CHECKING:
    import onnxruntime


class BoundCache(dict):
    """Arrays by name that steps update in place, with the `Binding` of the last step and the key that it was made for."""

    key: Hashable = None
    binding: Binding | None = None


class Binding:
    """A session bound to a cache. Binding looks up each array by name, so unchanged arrays are bound once.

    Args:
        session: `onnxruntime.InferenceSession`.
        labels: dict of the name of each output to that in the file.
        cache: dict of name to `OrtValue`.
        in_place: names of the outputs that overwrite the cache.
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        labels: Mapping[str, str],
        cache: Mapping[str, onnxruntime.OrtValue],
        in_place: Collection[str],
    ) -> None:
        self._session = session
        self._binding = session.io_binding()
        for name, value in cache.items():
            self._binding.bind_ortvalue_input(name, value)
        self._others = {name: label for name, label in labels.items() if name not in in_place}
        for name, label in labels.items():
            if name in in_place:
                self._binding.bind_ortvalue_output(label, cache[name])
            else:
                self._binding.bind_output(label)
        names = list(labels)  # Results are in the order in which outputs are bound.
        self._positions = {name: names.index(name) for name in self._others}
        self._values: dict[str, onnxruntime.OrtValue] | None = None

    def run(self, arrays: Mapping[str, np.ndarray]) -> dict[str, onnxruntime.OrtValue]:
        """Returns the outputs outside the cache: dict of name to `OrtValue`, overwritten by the next run."""
        for name, array in arrays.items():
            self._binding.bind_cpu_input(name, array)
        self._session.run_with_iobinding(self._binding)
        if self._values is None:
            found = self._binding.get_outputs()
            self._values = {name: found[position] for name, position in self._positions.items()}
            for name, label in self._others.items():
                self._binding.bind_ortvalue_output(label, self._values[name])
        return self._values


class OnnxSteps(RuntimeSteps):
    """Steps in ONNX Runtime, which write into a growing cache in place: no step copies it. See `RuntimeSteps`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._sessions: dict[str, onnxruntime.InferenceSession] = {}
        self._lock = threading.Lock()
        _, manifest, backend, _ = arguments
        self._labels = functools.cache(functools.partial(file_names, manifest, backend))
        self._in_place = written_in_place(self._specs("decode")[0])
        self._has_decode_token = "decode_token" in manifest.artifact(backend).signatures

    def open_first(self) -> None:
        self._session("encode" if self.spec.is_encoder_decoder else "prefill")

    def init_cache(self, batch_size: int, length: int, source: tuple[ArrayLike, ...] | None = None) -> Cache:
        return self._bindable(super().init_cache(batch_size, length, source))

    def make_cache(self, arrays: dict[str, np.ndarray]) -> Cache:
        return self._bindable(super().make_cache(arrays))

    def _session(self, signature: str) -> onnxruntime.InferenceSession:
        with self._lock:
            if signature not in self._sessions:
                if self.is_frugal:
                    self._sessions.clear()
                # Threads of what runs once per text must not spin on the cores that the next steps need.
                keeps_spinning = signature.startswith("decode")
                self._sessions[signature] = onnx_session(str(self._path(signature)), self._num_threads, keeps_spinning)
            return self._sessions[signature]

    def _call(self, signature: str, arrays: dict[str, np.ndarray], cache: Cache) -> dict[str, np.ndarray]:
        if signature == "decode" and arrays["token_ids"].shape[1] == 1 and self._has_decode_token:
            signature = "decode_token"
        binding = self._bound(signature, arrays["token_ids"].shape, cache) if "token_ids" in arrays else None
        binding = binding or Binding(self._session(signature), self._labels(signature).outputs, cache, self._in_place)
        return {
            name: value if name in self._updated else value.numpy().copy()
            for name, value in binding.run(arrays).items()
        }

    def _bound(self, signature: str, shape: tuple[int, ...], cache: Cache) -> Binding | None:
        """The binding of a cache that steps update in place, which serves every step of one shape; else None."""
        if not isinstance(cache, BoundCache):
            return None
        if cache.key != (signature, shape):
            cache.binding = None  # It keeps its session.
            cache.binding = Binding(self._session(signature), self._labels(signature).outputs, cache, self._in_place)
            cache.key = signature, shape
        return cache.binding

    def _bindable(self, cache: Cache) -> Cache:
        return BoundCache(cache) if self._in_place.issuperset(self._updated) else cache

    def _array(self, array: np.ndarray) -> onnxruntime.OrtValue:
        import onnxruntime

        return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))

    def _numpy(self, array: onnxruntime.OrtValue) -> np.ndarray:
        return array.numpy()
