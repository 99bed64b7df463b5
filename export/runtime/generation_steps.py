"""Prefill and decode steps of a language model, as every runtime has them."""

import contextlib
import functools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import RunError
from keras_transformer.export.runtime.generation_record import cache_names, generation_of
from keras_transformer.generation import GenerationSpec
from keras_transformer.generation.chat.sizes import cache_size
from keras_transformer.generation.decoding_request import ModelOutput
from keras_transformer.utils.errors import library_exceptions
from keras_transformer.utils.types import ArrayLike, Arrays, Cache

# Logits that a call may return: 256 MB.
_MOST_LOGITS = 1 << 26


class RuntimeSteps:
    """Base of the steps of a bundle's language model: what the decoding loop calls, see `generation.loop.decode`.

    A cache is a dict of the runtime's own arrays by name. A subclass implements `_call`, which runs one signature, and
    `_array` and `_numpy` where its arrays are not numpy's, and `_shape` where `_numpy` copies.

    Args:
        directory: path of the bundle.
        manifest: its manifest, with a record of generation.
        backend: name of the format.
        num_threads: threads for one call.

    Attributes:
        is_frugal: bool. Whether one signature at a time is loaded, which is slow where they alternate.
    """

    is_frugal = False

    def __init__(self, directory: pathlib.Path, manifest: Manifest, backend: str, num_threads: int) -> None:
        self.spec = GenerationSpec.from_dict(generation_of(manifest))
        self._path = functools.partial(manifest.path, directory, backend)
        self._specs = manifest.signature
        self._backend = backend
        self._num_threads = num_threads
        # The tensors of the cache that a step returns; the others are the encoded source, which does not change.
        self._updated = cache_names(manifest)

    def open_first(self) -> None:
        """Opens the file that a text begins with, in runtimes that open each with its first call."""

    def init_cache(self, batch_size: int, length: int, source: tuple[ArrayLike, ...] | None = None) -> Cache:
        """An empty cache of `length` slots, with the encoded source of an encoder-decoder."""
        sizes = {"batch": batch_size, "cache_length": length}
        cache = {}
        for spec in self._specs("decode")[0]:
            if spec.name in self._updated:
                shape = [sizes[axis] if axis else size for axis, size in zip(spec.axes, spec.shape, strict=True)]
                cache[spec.name] = self._array(self._zeros(spec, shape))
        if source is not None:
            with self._typed_errors("encode"):
                memory = self._call("encode", dict(zip(self.spec.source_names, source, strict=True)), {})
                cache |= {name: self._array(np.asarray(array)) for name, array in memory.items()}
        return cache

    def _zeros(self, spec: ArraySpec, shape: Sequence[int]) -> np.ndarray:
        """An empty tensor of a cache.

        Raises:
            RunError: it does not fit into memory, because much was asked for or because the manifest is wrong.
        """
        try:
            return np.zeros(shape, spec.dtype)
        except (MemoryError, ValueError) as error:
            reason = f"'{spec.name}' of shape {tuple(shape)} does not fit into memory"
            raise RunError(self._backend, "decode", reason) from error

    def make_source(self, token_ids: np.ndarray) -> tuple[np.ndarray, ...] | None:
        """A source to warm the model up with: these tokens, none padded; zeros where the source is not text; None where
        there is no source."""
        if not self.spec.is_encoder_decoder:
            return None
        if self.spec.source_shape is not None:
            length = 1 if self.spec.takes_prompts else token_ids.shape[1]
            shape = [length if size is None else size for size in self.spec.source_shape]
            grids = (np.zeros((len(token_ids), length, 2), "int32") for _ in self.spec.source_names[1:])
            return (np.zeros((len(token_ids), *shape), "float32"), *grids)
        return token_ids, np.ones(token_ids.shape, bool)

    def prefill(self, token_ids: ArrayLike, lengths: ArrayLike, cache: Cache) -> tuple[ModelOutput, Cache]:
        """Reads prompts: the logits after the last token of each, and the next cache."""
        return self._step("prefill", token_ids, {"lengths": lengths}, cache)

    def decode_step(self, token_ids: ArrayLike, cache: Cache, cache_index: ArrayLike) -> tuple[ModelOutput, Cache]:
        """Reads further tokens: the logits after each, and the next cache."""
        return self._step("decode", token_ids, {"cache_index": cache_index}, cache)

    def take_rows(self, cache: Cache, rows: ArrayLike) -> Cache:
        """A cache of the chosen rows of another."""
        return self.make_cache({name: np.take(self._numpy(array), rows, axis=0) for name, array in cache.items()})

    def extend(self, token_ids: np.ndarray, cache: Cache, cache_index: np.ndarray) -> tuple[ModelOutput, Cache]:
        """Reads the next tokens of one sequence in one call: the logits after the last, and the next cache.

        A file computes the logits after each token; those of very many tokens are not held at once.
        """
        start, count = int(cache_index[0]), token_ids.shape[1]
        if start == 0:
            output, cache = self.prefill(token_ids, np.array([count], "int32"), cache)
            return ModelOutput(output.logits, output.hidden_states[:, -1:]), cache
        size = max(1, _MOST_LOGITS // self.spec.vocabulary_size)
        *before, last = range(0, count, size)
        for first in before:
            _, cache = self.decode_step(token_ids[:, first : first + size], cache, np.array([start + first], "int32"))
        output, cache = self.decode_step(token_ids[:, last:], cache, np.array([start + last], "int32"))
        return ModelOutput(output.logits[:, -1:].copy(), output.hidden_states[:, -1:].copy()), cache

    def grow(self, cache: Cache, length: int) -> Cache:
        """A cache of one sequence with slots for at least `length` tokens: the same one if it has them."""
        size = self._length(cache)
        if size is None or length <= size:
            return cache
        grown = {}
        for name, larger in self.init_cache(1, cache_size(length, self.spec.max_length)).items():
            array, shape = self._numpy(cache[name]), np.shape(self._numpy(larger))
            grown[name] = np.pad(array, [(0, new - old) for new, old in zip(shape, array.shape, strict=True)])
        return {**cache, **self.make_cache(grown)}

    def make_cache(self, arrays: dict[str, np.ndarray]) -> Cache:
        """A cache with the values of numpy arrays."""
        return {name: self._array(array) for name, array in arrays.items()}

    def as_numpy(self, array: Any) -> np.ndarray:
        """A tensor of a cache as a numpy array, which in ONNX Runtime ends with the cache."""
        return self._numpy(array)

    def _step(self, signature: str, token_ids: ArrayLike, indices: Arrays, cache: Cache) -> tuple[ModelOutput, Cache]:
        arrays = {"token_ids": np.ascontiguousarray(token_ids, "int32")}
        arrays |= {name: np.asarray(each, "int32") for name, each in indices.items()}
        with self._typed_errors(signature):
            results = self._call(signature, arrays, cache)
            output = ModelOutput(np.asarray(results["logits"]), np.asarray(results["hidden_states"]))
            if output.logits.ndim != 3 or output.logits.shape[-1] != self.spec.vocabulary_size:
                raise ValueError(f"logits of shape {output.logits.shape} for {self.spec.vocabulary_size} tokens")
        new = {name: results[name] for name in self._updated if name in results}
        return output, {**cache, **new} if new else cache

    @contextlib.contextmanager
    def _typed_errors(self, signature: str) -> Iterator[None]:
        """Raises errors of the runtime as `RunError`."""
        try:
            yield
        except library_exceptions() as error:
            raise RunError(self._backend, signature, error) from error

    def _length(self, cache: Cache, axis: str = "cache_length") -> int | None:
        """Size of an axis of the cache; None where the cache has no such axis, as a state of fixed size."""
        for spec in self._specs("decode")[0]:
            if axis in spec.axes:
                return self._shape(cache[spec.name])[spec.axes.index(axis)]
        return None

    def _call(self, signature: str, arrays: dict[str, np.ndarray], cache: Cache) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def _array(self, array: np.ndarray) -> Any:
        return array

    def _numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def _shape(self, array: ArrayLike) -> tuple[int, ...]:
        return np.shape(self._numpy(array))
