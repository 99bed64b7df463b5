"""Arrays for the probes of a language model. They depend only on names and shapes."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.spec.vocabulary import integer_limits
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import keras

Arrays = dict[str, np.ndarray]


class LanguageProbes:
    """Makes tokens, sources, caches and probes of a `LanguageModel`.

    Args:
        model: `LanguageModel`.
    """

    def __init__(self, model: keras.Model) -> None:
        self.model = model
        self._steps: dict[tuple[Hashable, ...], Probe] = {}
        self._caches: dict[tuple[int, ...], Arrays] = {}
        layers = keras_private.flatten_layers(model) if None in (model.source_shape or ()) else []
        self._probe_length = max((getattr(layer, "probe_length", 0) for layer in layers), default=0)
        # Texts with images in them have one at the beginning.
        self._begin_ids = [layer.begin_id for layer in model.stepwise.target_layers if hasattr(layer, "begin_id")]

    def tokens(self, label: str, shape: tuple[int, int]) -> np.ndarray:
        """Random token ids."""
        random = np.random.default_rng(zlib.crc32(f"{label} {shape}".encode()))
        token_ids = random.integers(0, self.model.vocabulary_size, shape).astype("int32")
        token_ids[-1, -1] = self.model.vocabulary_size - 1  # The end of the table.
        if self._begin_ids and shape[1] > 1:
            token_ids[:, 0] = self._begin_ids[0]
        return token_ids

    def source(self, batch: int, length: int, size: int = 4) -> Arrays:
        """The source of an encoder-decoder by the names of its inputs; rows of a text have different lengths.

        Of three rows one is padded on the left. `size` is that of further dynamic axes of a source that is not text.
        """
        shape = self.model.source_shape
        if shape is not None:
            random = np.random.default_rng(zlib.crc32(f"source {batch}".encode()))
            # An image is many tokens, and a frame of a recording many samples.
            length = -(-length // 5) if self.model.takes_prompts else max(length, length * self._probe_length // 5)
            dynamic = iter((length, *(size,) * len(shape)))
            sizes = (batch, *(next(dynamic) if size is None else size for size in shape))
            name, *grids = self.model.source_names
            arrays = {name: random.normal(size=sizes).astype("float32")}
            limits = [self._grid_limit(each) for each in grids]
            drawn = (random.integers(limit // 2, limit, (batch, length, 2)).astype("int32") for limit in limits)
            return arrays | dict(zip(grids, drawn, strict=True))
        lengths = np.array([length - row % max(length // 2, 1) for row in range(batch)])
        mask = np.arange(length) < lengths[:, None]
        mask[2::3] = mask[2::3, ::-1]
        return dict(zip(self.model.source_names, (self.tokens("source", (batch, length)), mask), strict=True))

    def _grid_limit(self, name):
        """The sides of the grids of images, which are less."""
        (tensor,) = (each for each in self.model.inputs if each.name == name)
        return integer_limits([tensor])[0] or 2

    def cache(self, batch: int, length: int) -> Arrays:
        """An empty cache."""
        return as_arrays(self.model.init_cache(batch, length))

    def memory(self, batch: int, length: int = 5) -> Arrays:
        """The encoded source; empty for a decoder."""
        if not self.model.is_encoder_decoder:
            return {}
        return as_arrays(self.model.encode(*self.source(batch, length).values()))

    def prefill(self, batch: int, prompt: int, length: int) -> Probe:
        """A probe of `prefill`: prompts of different lengths, and `length` slots in the cache."""
        lengths = np.array([max(prompt - 2 * row, 1) for row in range(batch)], "int32")
        arrays = {"token_ids": self.tokens("prefill", (batch, prompt)), "lengths": lengths}
        arrays |= {**self.cache(batch, length), **self.memory(batch)}
        return Probe(arrays, label_of(batch, prompt, length))

    def decode(self, batch: int, new: int, length: int, source_length: int = 5, at_end: bool = False) -> Probe:
        """A probe of `decode`: new tokens after prompts of different lengths.

        Args:
            batch, new, length, source_length: numbers of rows, of new tokens, of slots, and of tokens of the source.
            at_end: bool. Whether the new tokens of the first row take the last slots; those before are empty.

        Returns:
            A `Probe`, the same one for the same arguments: caches are large.
        """
        key = batch, new, length, source_length, at_end
        if key not in self._steps:
            self._steps[key] = self._decode(*key)
        return self._steps[key]

    def _decode(self, batch: int, new: int, length: int, source_length: int, at_end: bool) -> Probe:
        index, cache = self._prefilled(batch, min(5, length - new), length, source_length)
        if at_end:
            index[0] = length - new
        arrays = {"token_ids": self.tokens("decode", (batch, new)), "cache_index": index}
        return Probe({**arrays, **cache}, label_of(batch, new, length) + (", at the end" if at_end else ""))

    def generate(self, batch: int, length: int, new: int) -> Probe:
        """A probe of `generate`: prompts or sources, and a number of new tokens."""
        length = min(length, (self.model.max_length or length + new) - new)
        arrays = self.source(batch, length) if self.model.is_encoder_decoder else {}
        if self.model.takes_prompts:
            lengths = np.array([max(length - row, 1) for row in range(batch)], "int32")
            arrays |= {"token_ids": self.tokens("generate", (batch, length)), "lengths": lengths}
        return Probe({**arrays, "max_new_tokens": np.array(new, "int32")}, label_of(batch, length))

    def _prefilled(self, batch: int, prompt: int, length: int, source_length: int) -> tuple[np.ndarray, Arrays]:
        """Prompts of different lengths that have been read: their lengths and the cache."""
        prompt = min(prompt, length - 1)
        lengths = np.array([max(prompt - row, 1) for row in range(batch)], "int32")
        key = batch, prompt, length, source_length
        if key not in self._caches:
            cache = {**self.cache(batch, length), **self.memory(batch, source_length)}
            _, _, after = self.model.prefill(self.tokens("prompt", (batch, prompt)), lengths, cache)
            self._caches[key] = as_arrays(after)
        return lengths, self._caches[key]


def as_arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    """Named tensors as numpy arrays."""
    return {name: np.asarray(tensor) for name, tensor in tensors.items()}


def label_of(batch: int, length: int, slots: int | None = None) -> str:
    """The label of a probe."""
    return f"batch={batch}, length={length}" + ("" if slots is None else f", cache_length={slots}")
