"""Prefill and decode steps of a language model in LiteRT."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from keras_transformer.export.runtime.generation_steps import RuntimeSteps
from keras_transformer.export.tflite.compiled_file import CacheTensor
from keras_transformer.export.tflite.engine import overwritable
from keras_transformer.export.tflite.runtime import TFLiteRuntime
from keras_transformer.export.tflite.weight_cache import WeightCache
from keras_transformer.generation.decoding_request import ModelOutput
from keras_transformer.utils.types import ArrayLike, Cache

# Tokens from which on a padded chunk takes less time than single steps.
_FEWEST = 4


class TFLiteSteps(RuntimeSteps):
    """Steps in LiteRT. One row runs in the signatures of fixed shapes as far as they reach, which write into the cache in
    place; several rows run in the dynamic ones. See `RuntimeSteps`.

    Args:
        arguments: those of `RuntimeSteps`.
        weights: `WeightCache` of the file; None for packed weights in memory.
    """

    def __init__(self, *arguments: Any, weights: WeightCache | None = None) -> None:
        super().__init__(*arguments)
        path = self._path("prefill")
        self._runtime = TFLiteRuntime(str(path), "prefill", self._num_threads, weights)
        self._in_place = functools.cache(functools.partial(overwritable, path, self._updated))
        self._names = set(self._runtime.signatures())
        # Lengths of the prompts, or of the sources, that have signatures of fixed shapes.
        kind = "encode" if self.spec.is_encoder_decoder else "prefill"
        lengths = (int(name.split("_")[1]) for name in self._names if name.startswith(f"{kind}_"))
        self._buckets = sorted(lengths) if self.spec.source_shape is None else []
        self._fixed_length = self._length_of_fixed_cache()
        chunks = (int(name.split("_")[1]) for name in self._names if name.startswith("extend_"))
        self._chunk = next(chunks, None)

    def init_cache(self, batch_size: int, length: int, source: tuple[ArrayLike, ...] | None = None) -> Cache:
        if batch_size == 1 and self._fixed_length and length <= self._fixed_length:
            length = self._fixed_length
        return super().init_cache(batch_size, length, source)

    def prefill(self, token_ids: ArrayLike, lengths: ArrayLike, cache: Cache) -> tuple[ModelOutput, Cache]:
        tokens, first = np.asarray(token_ids), self._buckets[-1] if self._buckets else 0
        if not self._is_chunked(tokens, cache) or not 0 < first < tokens.shape[1]:
            return super().prefill(token_ids, lengths, cache)
        begun, cache = super().prefill(tokens[:, :first], np.array([first]), cache)
        rest, cache = self._read(tokens[:, first : int(np.asarray(lengths)[0])], cache, first)
        if self.spec.has_prefill_exit:
            return rest, cache
        return ModelOutput(rest.logits, np.concatenate([begun.hidden_states, rest.hidden_states], axis=1)), cache

    def extend(self, token_ids: np.ndarray, cache: Cache, cache_index: np.ndarray) -> tuple[ModelOutput, Cache]:
        start = int(cache_index[0])
        if start == 0 or token_ids.shape[1] == 1 or not self._is_chunked(token_ids, cache):
            return super().extend(token_ids, cache, cache_index)
        output, cache = self._read(token_ids, cache, start)
        return ModelOutput(output.logits, output.hidden_states[:, -1:].copy()), cache

    def _is_chunked(self, tokens: np.ndarray, cache: Cache) -> bool:
        """Whether tokens of one row are read in chunks of fixed shapes."""
        return self._chunk is not None and len(tokens) == 1 and self._length(cache) == self._fixed_length

    def _read(self, tokens: np.ndarray, cache: Cache, start: int) -> tuple[ModelOutput, Cache]:
        """Reads tokens of one row after others, in chunks and one by one; the logits after the last, all hidden states."""
        assert self._chunk is not None
        hidden, at, count = [], 0, tokens.shape[1]
        while True:
            part = tokens[:, at : at + self._chunk]
            fits = self._fixed_length is None or start + at + self._chunk <= self._fixed_length
            if part.shape[1] >= min(_FEWEST, self._chunk) and fits:
                padded = np.pad(part, ((0, 0), (0, self._chunk - part.shape[1])))
                indices = {"lengths": [part.shape[1]], "cache_index": [start + at]}
                output, cache = self._step("extend", padded, indices, cache)
            else:
                part = part[:, :1]
                output, cache = self.decode_step(part, cache, [start + at])
            at += part.shape[1]
            hidden.append(output.hidden_states[:, : part.shape[1]])
            if at == count:
                states = hidden[-1][:, -1:] if self.spec.has_prefill_exit else np.concatenate(hidden, axis=1)
                return ModelOutput(output.logits, states), cache

    def _length_of_fixed_cache(self) -> int | None:
        """The slots of the cache in the decoding signature of fixed shapes; None without one."""
        name = next((name for name in self._names if name.startswith("decode_1")), None)
        if name is None:
            return None
        specs = self._specs(name)[0]
        return self._length({spec.name: CacheTensor(np.empty([size or 0 for size in spec.shape])) for spec in specs})

    def _call(self, signature: str, arrays: dict[str, np.ndarray], cache: Cache) -> Cache:
        if signature == "encode":
            signature, arrays = self._encoding(arrays)
        elif self._length(cache) == self._fixed_length and len(arrays["token_ids"]) == 1:
            signature, arrays = self._fixed(signature, arrays, cache)
        if self.is_frugal:
            self._runtime.forget(signature)
        if self._runtime.is_compiled(signature):
            return self._runtime.step(signature, arrays, cache, self._in_place(signature))
        results = self._runtime.call(signature, {**arrays, **{name: each.numpy() for name, each in cache.items()}})
        return {name: CacheTensor(each) if name in self._updated else each for name, each in results.items()}

    def _array(self, array: np.ndarray) -> CacheTensor:
        return CacheTensor(np.ascontiguousarray(array))

    def _numpy(self, array: CacheTensor) -> np.ndarray:
        return array.numpy()

    def _shape(self, array: CacheTensor) -> tuple[int, ...]:
        return array.shape

    def _encoding(self, arrays: dict[str, np.ndarray]) -> tuple[str, dict[str, np.ndarray]]:
        """The signature that encodes a source, and its inputs."""
        if self.spec.source_shape is None:
            return self._padded("encode", arrays, self.spec.source_names)
        is_one = len(arrays[self.spec.source_names[0]]) == 1 and "encode_1" in self._names
        return "encode_1" if is_one else "encode", arrays

    def _fixed(self, signature: str, arrays: dict[str, np.ndarray], cache: Cache) -> tuple[str, dict[str, np.ndarray]]:
        """The signature of fixed shapes for one row, where there is one, and its inputs."""
        source_length = self._length(cache, "source_length")
        step = "decode_1" if source_length is None else f"decode_1_{source_length}"
        if arrays["token_ids"].shape[1] == 1 and step in self._names:
            if signature == "prefill":  # A prompt of one token is a decoding step.
                arrays = {"token_ids": arrays["token_ids"], "cache_index": arrays["lengths"] - 1}
            return step, arrays
        if signature == "extend":
            return f"extend_{self._chunk}", arrays
        return self._padded("prefill", arrays, ("token_ids",)) if signature == "prefill" else (signature, arrays)

    def _padded(
        self, signature: str, arrays: dict[str, np.ndarray], names: tuple[str, ...]
    ) -> tuple[str, dict[str, np.ndarray]]:
        """Pads the arrays of one row to the next length that has a signature of fixed shapes."""
        batch, length = arrays[names[0]].shape
        bucket = next((bucket for bucket in self._buckets if bucket >= length), None)
        if batch != 1 or bucket is None:
            return signature, arrays
        padded = {name: np.pad(arrays[name], ((0, 0), (0, bucket - length))) for name in names}
        return f"{signature}_{bucket}", {**arrays, **padded}
