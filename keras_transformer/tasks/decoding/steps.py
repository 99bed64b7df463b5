"""Decoding steps of a Keras language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from keras import ops

from keras_transformer.attention.cache.layout import slot_axes
from keras_transformer.backend.compilation.compiling import ModelStructure, compiled, needs_fixed_shapes
from keras_transformer.generation.chat.sizes import cache_size, turn_size
from keras_transformer.generation.decoding_request import ModelOutput
from keras_transformer.generation.loop import pad
from keras_transformer.tasks.decoding.generate_graph import generate_graph
from keras_transformer.utils.types import ArrayLike, Cache, Tensor

if TYPE_CHECKING:
    from keras_transformer.backend.compilation.compiling import DynamicAxes
    from keras_transformer.generation.decoding_request import DecodingRequest
    from keras_transformer.generation.protocols import Source, TokenSampler
    from keras_transformer.tasks.text.language_model import LanguageModel

# Lengths are rounded up to multiples of these, to limit the number of compiled shapes.
_CACHE_BLOCK = 32
_PROMPT_BLOCK = 16


class KerasSteps:
    """The compiled decoding steps of a `LanguageModel`. Implements `generation.protocols.ConversationalSteps`.

    On TensorFlow without XLA a step is traced once for all sizes of batches and caches, and for all numbers of new tokens
    but one.
    Where each set of shapes is compiled, turns of a conversation are padded to few sizes, and caches have few sizes.

    Args:
        model: `LanguageModel`.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.spec = model.generation_spec
        self.jit_compile = model.jit_compile
        self._has_fixed_shapes = needs_fixed_shapes(self.jit_compile)
        self._slot_axes = slot_axes(model.init_cache)
        self._structure = ModelStructure(model)  # Looked at once for each text, not for each token.
        self._encode = self._compiled(model.encode)
        self._prefill = self._compiled(model.prefill, self._dynamic_axes)
        self._extend = self._compiled(model.extend, self._dynamic_axes)
        self._decode_step = self._compiled(model.decode_step, self._dynamic_axes_of_step)
        self._graphs: dict[tuple[TokenSampler, int], Callable[..., Any]] = {}

    def _compiled(self, function: Callable[..., object], dynamic_axes: DynamicAxes | None = None) -> Callable[..., Any]:
        return compiled(function, self.model, self.jit_compile, self._structure, dynamic_axes)

    def _dynamic_axes(self, token_ids: Tensor, *others: object) -> tuple[object, ...]:
        """Returns the axes of the arguments of a step whose sizes vary: of rows, of new tokens, and of slots."""
        return ((0, 1), *map(self._varying, others))

    def _dynamic_axes_of_step(self, token_ids: Tensor, *others: object) -> tuple[object, ...]:
        """Like `_dynamic_axes`, but a single new token has a faster trace of its own."""
        return ((0, 1) if token_ids.shape[1] > 1 else (0,), *map(self._varying, others))

    def _varying(self, argument: object) -> dict[str, tuple[int, ...]] | tuple[int]:
        if isinstance(argument, dict):
            return {name: (0, *self._slot_axes.get(name, ())) for name in argument}
        return (0,)

    def init_cache(self, batch_size: int, length: int, source: Source | None = None) -> Cache:
        """Returns an empty cache for at least `length` tokens, with the encoded source if there is one."""
        self._structure.version()
        cache = self.model.init_cache(batch_size, _round_up(length, _CACHE_BLOCK))
        return cache if source is None else {**cache, **self._encode(*self._source(source))}

    def prefill(self, token_ids: np.ndarray, lengths: ArrayLike, cache: Cache) -> tuple[ModelOutput, Cache]:
        """Reads prompts `(B, T)`, padded on the right, into an empty cache."""
        width = min(_round_up(token_ids.shape[1], _PROMPT_BLOCK, self.spec.max_length), self._slots(cache))
        return _output(*self._prefill(_widen(token_ids, width), lengths, cache))

    def decode_step(self, token_ids: ArrayLike, cache: Cache, cache_index: ArrayLike) -> tuple[ModelOutput, Cache]:
        """Reads tokens `(R, T)` after the `cache_index` `(R,)` tokens of each row."""
        return _output(*self._decode_step(token_ids, cache, cache_index))

    def extend(self, token_ids: np.ndarray, cache: Cache, cache_index: np.ndarray) -> tuple[ModelOutput, Cache]:
        """Reads the next tokens `(1, T)` of a sequence in one call; the cache may grow for padding."""
        index, count = int(cache_index[0]), token_ids.shape[1]
        if index == 0:
            self._structure.version()
        width = count
        if self._has_fixed_shapes:
            width = turn_size(count, None if self.spec.max_length is None else self.spec.max_length - index)
            cache = self.grow(cache, index + width)
        lengths = np.array([count], "int32")
        output, cache = _output(*self._extend(_widen(token_ids, width), lengths, cache, cache_index))
        last = slice(None) if self.spec.has_prefill_exit else slice(count - 1, count)
        return ModelOutput(output.logits, output.hidden_states[:, last]), cache

    def take_rows(self, cache: Cache, rows: ArrayLike) -> Cache:
        """Returns the cache with the given rows `(R,)`."""
        rows = ops.convert_to_tensor(rows, "int32")
        return {name: ops.take(tensor, rows, axis=0) for name, tensor in cache.items()}

    def grow(self, cache: Cache, length: int) -> Cache:
        """Returns the cache of one sequence with slots for at least `length` tokens: the same one if it has them."""
        if length <= self._slots(cache):
            return cache
        slots = cache_size(length, self.spec.max_length, self._has_fixed_shapes)
        shapes = {name: tensor.shape for name, tensor in self.model.init_cache(1, slots).items()}
        return {name: _grown(tensor, shapes[name]) for name, tensor in cache.items()}

    def generate(self, request: DecodingRequest, sampler: TokenSampler) -> list[list[list[int]]]:
        """Runs the whole decoding loop as one compiled graph.

        Args:
            request: `DecodingRequest` without stop sequences and repetition penalty.
            sampler: `Greedy` or `Random`.

        Returns:
            New tokens of each row, as `TokenSearch.results` returns them.
        """
        self._structure.version()
        slots = _round_up(request.max_new_tokens, _CACHE_BLOCK)
        if (sampler, slots) not in self._graphs:
            self._graphs[sampler, slots] = self._compiled(generate_graph(self.model, sampler, slots))
        arrays = {"max_new_tokens": np.array(request.max_new_tokens, "int32")}
        if request.source is not None:
            arrays |= zip(self.spec.source_names, self._source(request.source), strict=True)
        if self.spec.takes_prompts or request.lengths.max() > 1:
            width = _round_up(int(request.lengths.max()), _PROMPT_BLOCK, self.spec.max_length)
            arrays |= {"token_ids": _widen(pad(request.prompts), width), "lengths": request.lengths}
        if sampler.is_random:
            arrays["uniforms"] = request.uniforms(slots)
        results = self._graphs[sampler, slots](arrays)
        texts, lengths = (ops.convert_to_numpy(results[name]) for name in ("new_token_ids", "new_lengths"))
        return [[text[:length].tolist()] for text, length in zip(texts, lengths, strict=True)]

    def _slots(self, cache: Cache) -> int:
        """Returns the number of slots of a cache; a large number for a cache without slots."""
        sizes = (cache[name].shape[axis] for name, axes in self._slot_axes.items() for axis in axes)
        return next(sizes, 1 << 30)

    def _source(self, source: Source) -> Sequence[ArrayLike]:
        if self.spec.source_shape is not None:
            return source
        width = _round_up(source[0].shape[1], _PROMPT_BLOCK, self.spec.max_length)
        return [_widen(array, width) for array in source]


def _grown(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """Returns a tensor with zeros up to a larger shape."""
    return ops.pad(tensor, [(0, new - old) for new, old in zip(shape, tensor.shape, strict=True)])


def _output(logits: Tensor, hidden_states: Tensor, cache: Cache) -> tuple[ModelOutput, Cache]:
    return ModelOutput(ops.convert_to_numpy(logits), ops.convert_to_numpy(hidden_states)), cache


def _round_up(length: int, block: int, most: int | None = None) -> int:
    rounded = -(-length // block) * block
    return rounded if most is None else max(length, min(rounded, most))


def _widen(array: np.ndarray, width: int) -> np.ndarray:
    return np.pad(array, ((0, 0), (0, width - array.shape[1])))
