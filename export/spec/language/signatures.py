"""The signatures of a language model: `prefill` and `decode` with the cache as named inputs and outputs, and more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import Probe, Signature
from keras_transformer.export.formats import formats_with
from keras_transformer.export.spec.language.probes import LanguageProbes, as_arrays, label_of
from keras_transformer.export.spec.lengths import reaching_length
from keras_transformer.tasks.decoding.generate_graph import generate_graph
from keras_transformer.utils.types import Cache, Tensor

if TYPE_CHECKING:
    import keras

Function = Callable[[dict[str, Tensor]], dict[str, Tensor]]

_SOURCE_TOKENS = "source_token_ids"
_LONGEST_PROMPT, _MOST_SLOTS = 300, 1024
# Past tiles of 64 tokens.
_MANY = 67
_SHORT_SOURCE = 9
# (batch, tokens, slots) of further probes.
_FURTHER_PROMPTS = ((2, 8, 16), (7, 5, 12), (8, 1, 9))
_FURTHER_STEPS = ((4, 1, 16), (7, 1, 9), (8, 1, 12))
# Several tokens at once, as many as a vector has numbers.
_FURTHER_CHUNKS = ((2, 8, 16),)


class LanguageSignatures:
    """Makes the signatures of a `LanguageModel`, with probes that have no outputs yet.

    Args:
        model: `LanguageModel`.
    """

    def __init__(self, model: keras.Model) -> None:
        self.model = model
        self.probes = LanguageProbes(model)
        self._cache_specs = _cache_specs(model)
        self._memory_specs = _memory_specs(model, self.probes) if model.is_encoder_decoder else ()

    @property
    def states(self) -> dict[str, list[str]]:
        """The manifest's record of what is passed from call to call: "cache" names the tensors that `prefill` and `decode`
        take and return, zeros at first; "memory" those that `encode` returns and the others take unchanged."""
        groups = {"cache": self._cache_specs, "memory": self._memory_specs}
        return {group: [spec.name for spec in specs] for group, specs in groups.items()}

    def encode(self) -> Signature:
        """Encodes sources."""
        model, probes = self.model, self.probes

        def encode(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return dict(model.encode(*(tensors[name] for name in model.source_names)))

        sizes = [(1, 5), (3, 9)] + [(2, length) for length in self._long_sources]
        cases = [Probe(probes.source(*each), label_of(*each)) for each in sizes]
        return Signature(encode, self._source_specs(), cases)

    def prefill(self) -> Signature:
        """Reads prompts."""
        inputs = (*_token_ids("length"), _int_per_row("lengths"), *self._cache_specs, *self._memory_specs)
        length = self._reaching
        probes = [
            self.probes.prefill(*sizes) for sizes in self._sizes(((1, 4, 9), (3, 7, 16), (1, length, length + 5)))
        ]
        further = [self.probes.prefill(*sizes) for sizes in self._sizes(_FURTHER_PROMPTS)]
        return Signature(self._step(self.model.prefill, "lengths"), inputs, probes, further=further)

    def decode(self) -> Signature:
        """Reads one or more tokens of each row."""
        inputs = (*_token_ids("length"), _int_per_row("cache_index"), *self._cache_specs, *self._memory_specs)
        probes = [self.probes.decode(*sizes) for sizes in self._sizes(((1, 1, 9), (3, 1, 16), (2, 3, 12)))]
        probes += [*self._at_end(), *self._many_tokens()]
        probes += [self.probes.decode(2, 1, 9, source_length=length) for length in self._long_sources]
        further = [*self._further_steps, *(self.probes.decode(*sizes) for sizes in self._sizes(_FURTHER_CHUNKS))]
        return Signature(self._step(self.model.decode_step, "cache_index"), inputs, probes, further=further)

    def decode_token(self) -> Signature:
        """`decode` for one token a row, which is faster because fewer shapes are computed at run time."""
        ids = ArraySpec("token_ids", "int32", (None, 1), ("batch", None))
        inputs = (ids, _int_per_row("cache_index"), *self._cache_specs, *self._memory_specs)
        probes = [self.probes.decode(*sizes) for sizes in self._sizes(((1, 1, 9), (3, 1, 16)))] + self._at_end()
        formats = formats_with("takes_single_tokens")
        function = self._step(self.model.decode_step, "cache_index")
        return Signature(function, inputs, probes, formats=formats, general="decode", further=self._further_steps)

    def static(self, bucket: int, length: int) -> dict[str, Signature]:
        """Signatures of fixed shapes for prompts of up to `bucket` tokens; of an encoder-decoder for such sources."""
        if not self.model.is_encoder_decoder:
            probe = self.probes.prefill(1, bucket, length)
            return {f"prefill_{bucket}": _static("prefill", self._step(self.model.prefill, "lengths"), probe)}
        # A decoder begins with one token, which `decode` reads.
        return {
            f"encode_{bucket}": self.static_encode(bucket),
            f"decode_1_{bucket}": self.static_decode(length, bucket),
        }

    def static_encode(self, source_length: int = 5) -> Signature:
        """`encode` of fixed shapes for one row."""
        probe = Probe(self.probes.source(1, source_length), label_of(1, source_length))
        return _static("encode", self.encode().function, probe)

    def static_decode(self, length: int, source_length: int = 5) -> Signature:
        """`decode` of fixed shapes for one row and one token."""
        probes = [self.probes.decode(1, 1, length, source_length, at_end) for at_end in (False, True)]
        return _static("decode", self._step(self.model.decode_step, "cache_index"), *probes)

    def static_extend(self, count: int, length: int) -> Signature:
        """Reads up to `count` further tokens of one row: `prefill` of fixed shapes, after others in the cache."""
        steps = [self.probes.decode(1, count, length, at_end=at_end) for at_end in (False, True)]
        read = (max(1, count - 1), count)
        probes = [
            Probe({**each.inputs, "lengths": np.array([number], "int32")}, f"{each.label}, {number} read")
            for each, number in zip(steps, read, strict=True)
        ]
        return _static("extend", self._step(self.model.extend, "lengths", "cache_index"), *probes)

    def generate(self) -> Signature:
        """Greedy decoding with its loop inside the graph."""
        source = self._source_specs() if self.model.is_encoder_decoder else ()
        prompts = (*_token_ids("length"), _int_per_row("lengths")) if self.model.takes_prompts else ()
        inputs = (*source, *prompts, ArraySpec("max_new_tokens", "int32", (), ()))
        probes = [self.probes.generate(*sizes) for sizes in ((1, 3, 4), (3, 6, 3))]
        # Its steps are those of `prefill` and `decode`, which are called twice.
        return Signature(generate_graph(self.model), inputs, probes, is_repeatable=True)

    def _step(self, function: Callable[..., tuple[Tensor, Tensor, Cache]], *indices: str) -> Function:
        """`prefill`, `extend` or `decode_step` as a function of named tensors."""
        memory = {spec.name for spec in self._memory_specs}
        names = [spec.name for spec in (*self._cache_specs, *self._memory_specs)]

        def step(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            cache = {name: tensors[name] for name in names}
            given = {"cache": cache, **{name: tensors[name] for name in indices}}
            logits, hidden_states, cache = function(tensors["token_ids"], **given)
            cache = {name: tensor for name, tensor in cache.items() if name not in memory}
            return {"logits": logits, "hidden_states": hidden_states, **cache}

        return step

    @property
    def _reaching(self) -> int:
        """The length of the longest prompt; the end of a longer table is read by a step."""
        return min(reaching_length(getattr(self.model, "task", self.model)), _LONGEST_PROMPT)

    @property
    def _further_steps(self) -> list[Probe]:
        """Probes of one token of rows of other numbers."""
        return [self.probes.decode(*sizes) for sizes in self._sizes(_FURTHER_STEPS)]

    def _at_end(self) -> list[Probe]:
        """Probes of one token in the last slot: of a small cache for two rows, and of all that the model allows."""
        slots = self._reaching + 5 if self.model.max_length is None else self.model.max_length
        sizes = [*self._sizes(((2, 1, 12),)), (1, 1, min(slots, _MOST_SLOTS))]
        return [self.probes.decode(*each, at_end=True) for each in sizes]

    def _many_tokens(self) -> list[Probe]:
        """A probe of more tokens at a time than usual tiles have, after others in the cache, where the model allows it."""
        most = self.model.max_length
        return [self.probes.decode(1, _MANY, _MANY + 5)] if most is None or most >= _MANY + 5 else []

    @property
    def _long_sources(self) -> list[int]:
        """The length of the longest source, if that is a text and longer than those of other probes."""
        is_text = self.model.is_encoder_decoder and self.model.source_shape is None
        return [self._reaching] if is_text and self._reaching > _SHORT_SOURCE else []

    def _sizes(self, sizes: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """(batch, tokens, slots), not more than the model allows."""
        most = self.model.max_length
        if most is None:
            return list(sizes)
        return [(batch, min(tokens, most), min(slots, most)) for batch, tokens, slots in sizes]

    def _source_specs(self) -> tuple[ArraySpec, ...]:
        shape, names = self.model.source_shape, self.model.source_names
        if shape is not None:
            dynamic = iter(("source_length", *(f"source_axis_{index}" for index in range(1, len(shape)))))
            axes = ("batch", *(None if size else next(dynamic) for size in shape))
            grid_axes = ("batch", "source_length", None)
            grids = (ArraySpec(name, "int32", (None, None, 2), grid_axes) for name in names[1:])
            return (ArraySpec(names[0], "float32", (None, *shape), axes), *grids)
        dtypes = ["int32" if name == _SOURCE_TOKENS else "bool" for name in names]
        axes = ("batch", "source_length")
        return tuple(ArraySpec(name, dtype, (None, None), axes) for name, dtype in zip(names, dtypes, strict=True))


def _static(general: str, function: Function, probe: Probe, *others: Probe) -> Signature:
    """A signature of exactly the shapes of some probes, that computes what another one does for any shapes."""
    inputs = tuple(
        ArraySpec(name, str(array.dtype), array.shape, (None,) * array.ndim) for name, array in probe.inputs.items()
    )
    formats = formats_with("takes_fixed_shapes")
    return Signature(function, inputs, [probe, *others], formats=formats, general=general)


def _token_ids(axis: str) -> tuple[ArraySpec]:
    return (ArraySpec("token_ids", "int32", (None, None), ("batch", axis)),)


def _int_per_row(name: str) -> ArraySpec:
    return ArraySpec(name, "int32", (None,), ("batch",))


def _cache_specs(model: keras.Model) -> tuple[ArraySpec, ...]:
    """Specs of the tensors of the cache."""
    return _dynamic_specs(model.init_cache(1, 2), batch=model.init_cache(2, 2), cache_length=model.init_cache(1, 3))


def _memory_specs(model: keras.Model, probes: LanguageProbes) -> tuple[ArraySpec, ...]:
    """Specs of the tensors of an encoded source."""
    sizes = ((1, 5, 4), (2, 5, 4), (1, 6, 4), (1, 5, 5))
    small, wide, long, large = (model.encode(*probes.source(*each).values()) for each in sizes)
    return _dynamic_specs(small, batch=wide, source_length=long, source_size=large)


def _dynamic_specs(small: Mapping[str, Tensor], **larger: Mapping[str, Tensor]) -> tuple[ArraySpec, ...]:
    """Specs of named tensors, from small ones, and for each dynamic axis those that are larger along it."""
    arrays = {axis: as_arrays(tensors) for axis, tensors in larger.items()}
    specs = []
    for name, tensor in as_arrays(small).items():
        axes = tuple(
            next((axis for axis in arrays if arrays[axis][name].shape[index] != size), None)
            for index, size in enumerate(tensor.shape)
        )
        shape = tuple(None if axis else size for axis, size in zip(axes, tensor.shape, strict=True))
        specs.append(ArraySpec(name, str(tensor.dtype), shape, axes))
    return tuple(specs)
