"""Prefill and decode steps of a bundle that has signatures of fixed shapes only, as accelerators run them."""

import dataclasses
import pathlib
from collections.abc import Mapping

import numpy as np

from keras_transformer.export.bundle.file_names import file_names
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.format import Format
from keras_transformer.export.formats import get_format
from keras_transformer.export.runtime.generation_record import STATIC_LENGTH, decoding_signature, generation_of
from keras_transformer.export.runtime.generation_steps import RuntimeSteps
from keras_transformer.export.runtime.runtime import Runtime, named_runtime
from keras_transformer.generation.decoding_request import ModelOutput
from keras_transformer.utils.types import ArrayLike, Cache

_SOURCE_MASK = "source_padding_mask"


class FixedSteps(RuntimeSteps):
    """Steps of one row and one token: `prefill_32`, `prefill_128`, ... read the beginning of a prompt, `decode_1` the rest
    of a longer one and every new token. An encoder-decoder has `encode_32`, ... and `decode_1_32`, ... by the length of its
    source. Rows of a batch run one after the other. See `RuntimeSteps`.

    Args:
        directory: path of the bundle.
        manifest: its manifest.
        backend: name of the format.
        num_threads: threads for one call.
        format: the `Format` that opens signatures; None for that of the name.
    """

    def __init__(
        self, directory: pathlib.Path, manifest: Manifest, backend: str, num_threads: int, format: Format | None = None
    ) -> None:
        super().__init__(directory, manifest, backend, num_threads)
        self._format = format or get_format(backend)
        slots = int(generation_of(manifest)[STATIC_LENGTH])
        most = self.spec.max_length
        self.spec = dataclasses.replace(self.spec, max_length=slots if most is None else min(slots, most))
        self._directory, self._manifest = directory, manifest
        self._names = list(manifest.artifact(backend).signatures)
        self._runtimes: dict[str, Runtime] = {}
        self._first_decode = decoding_signature(manifest)

    def open_first(self) -> None:
        self._runtime(next(iter(self._names)))

    def init_cache(self, batch_size: int, length: int, source: tuple[ArrayLike, ...] | None = None) -> Cache:
        specs = {each.name: each for each in self._specs(self._first_decode)[0]}
        shapes = {name: [batch_size, *(size or 0 for size in specs[name].shape[1:])] for name in self._updated}
        cache = {name: self._zeros(specs[name], shape) for name, shape in shapes.items()}
        return cache if source is None else {**cache, **self._encode(source)}

    def prefill(self, token_ids: ArrayLike, lengths: ArrayLike, cache: Cache) -> tuple[ModelOutput, Cache]:
        """Reads each prompt: its beginning in one call, further tokens one by one."""
        rows = [
            self._prefill_row(np.asarray(row)[: int(length)], _row(cache, number))
            for number, (row, length) in enumerate(zip(np.asarray(token_ids), np.asarray(lengths), strict=True))
        ]
        return _joined(rows, cache)

    def decode_step(self, token_ids: ArrayLike, cache: Cache, cache_index: ArrayLike) -> tuple[ModelOutput, Cache]:
        """Reads further tokens of each row, one by one."""
        rows = [
            self._decode_row(row, _row(cache, number), int(start))
            for number, (row, start) in enumerate(zip(np.asarray(token_ids), np.asarray(cache_index), strict=True))
        ]
        return _joined(rows, cache)

    def grow(self, cache: Cache, length: int) -> Cache:
        """The same cache: it has all the slots that there are."""
        return cache

    def _prefill_row(self, tokens: np.ndarray, cache: Cache) -> tuple[ModelOutput, Cache]:
        buckets = self._buckets("prefill")
        if not buckets or len(tokens) == 1:
            output, cache = self._decode_row(tokens, cache, 0)
            return ModelOutput(output.logits[:, -1:], output.hidden_states), cache
        bucket = next((each for each in buckets if each >= len(tokens)), buckets[-1])
        first = tokens[:bucket]
        padded = np.pad(first, (0, bucket - len(first)))[None].astype("int32")
        arrays = {"token_ids": padded, "lengths": np.array([len(first)], "int32")}
        output, cache = self._run(f"prefill_{bucket}", arrays, cache)
        hidden = output.hidden_states if self.spec.has_prefill_exit else output.hidden_states[:, : len(first)]
        output = ModelOutput(output.logits, hidden)
        if len(first) == len(tokens):
            return output, cache
        rest, cache = self._decode_row(tokens[bucket:], cache, bucket)
        both = [rest.hidden_states] if self.spec.has_prefill_exit else [hidden, rest.hidden_states]
        hidden = np.concatenate(both, axis=1)
        return ModelOutput(rest.logits[:, -1:], hidden[:, -1:] if self.spec.has_prefill_exit else hidden), cache

    def _decode_row(self, tokens: np.ndarray, cache: Cache, start: int) -> tuple[ModelOutput, Cache]:
        signature, found = self._decoding(cache), []
        for index, token in enumerate(tokens, start):
            arrays = {"token_ids": np.array([[token]], "int32"), "cache_index": np.array([index], "int32")}
            output, cache = self._run(signature, arrays, cache)
            found.append(output)
        return ModelOutput(*(np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))), cache

    def _run(self, signature: str, arrays: Mapping[str, np.ndarray], cache: Cache) -> tuple[ModelOutput, Cache]:
        with self._typed_errors(signature):
            names = [each.name for each in self._specs(signature)[0]]
            found = self._runtime(signature)({name: {**cache, **arrays}[name] for name in names})
        new = {name: found[name] for name in self._updated if name in found}
        return ModelOutput(found["logits"], found["hidden_states"]), {**cache, **new}

    def _encode(self, source: tuple[ArrayLike, ...]) -> Cache:
        """The encoded source of each row, padded to the next length that has signatures."""
        length, buckets = np.shape(source[0])[1], self._buckets("encode")
        bucket = next((each for each in buckets if each >= length), None)
        signature = "encode_1" if self.spec.source_shape is not None else f"encode_{bucket}"
        arrays = dict(zip(self.spec.source_names, map(np.asarray, source), strict=True))
        if self.spec.source_shape is None and bucket is not None:
            arrays = {name: np.pad(array, ((0, 0), (0, bucket - length))) for name, array in arrays.items()}
        with self._typed_errors(signature):
            if signature not in self._names:
                raise ValueError(f"a source of {length} tokens; the bundle has {', '.join(self._names)}")
            runtime = self._runtime(signature)
            rows = [runtime(_row(arrays, number)) for number in range(len(source[0]))]
        return {name: np.concatenate([each[name] for each in rows]) for name in rows[0]}

    def _decoding(self, cache: Cache) -> str:
        """The decoding signature for a cache: of an encoder-decoder of texts, that for the length of its source."""
        if _SOURCE_MASK in cache:
            return f"decode_1_{np.shape(cache[_SOURCE_MASK])[1]}"
        return self._first_decode

    def _buckets(self, kind: str) -> list[int]:
        return sorted(int(name.split("_")[1]) for name in self._names if name.startswith(f"{kind}_"))

    def _runtime(self, signature: str) -> Runtime:
        if signature not in self._runtimes:
            runtime = self._format.open(self._directory, self._manifest, signature, self._num_threads)
            labels = file_names(self._manifest, self._backend, signature)
            self._runtimes[signature] = named_runtime(runtime, labels)
        return self._runtimes[signature]


def _row(arrays: Mapping[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(array[number : number + 1]) for name, array in arrays.items()}


def _joined(rows: list[tuple[ModelOutput, Cache]], cache: Cache) -> tuple[ModelOutput, Cache]:
    """The outputs and caches of all rows; hidden states are padded to the longest row."""
    width = max(output.hidden_states.shape[1] for output, _ in rows)
    hidden = [
        np.pad(output.hidden_states, ((0, 0), (0, width - output.hidden_states.shape[1]), (0, 0))) for output, _ in rows
    ]
    logits = np.concatenate([output.logits for output, _ in rows])
    new = {name: np.concatenate([each[name] for _, each in rows]) for name in cache}
    return ModelOutput(logits, np.concatenate(hidden)), new
