"""Values of inputs that lookups and bins read: of their vocabularies and bounds, and beside them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_transformer.backend import keras_private
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import Probe
from keras_transformer.export.spec.probing.ranges import readers

_LOOKUPS = (keras.layers.StringLookup, keras.layers.IntegerLookup, keras.layers.TextVectorization)
# Of a vocabulary, evenly spaced.
_MOST_TOKENS = 24
_LONGEST_TEXT, _FIRST_TEXT = 12, 8
_STRANGERS = (
    "zebra crossing",
    "",
    "Größe",
    "東京タワー",
    "🚀",
    "it's; a (test)!",
    "a string of more than sixteen bytes",
    "x" * 99,
)
_NUMBERS = (0, -1, 123456789)


def known_values(tensors: Sequence[keras.KerasTensor], longest: int | None = None) -> list[list[Any]]:
    """For each input of a model the values on which its lookups are tried, and both sides of the bounds of its bins; none
    where neither reads it.

    Strings that no lookup reads, but a hash, say, have values too.

    Args:
        tensors: the symbolic inputs of a Functional model.
        longest: most tokens of a text, or None.
    """
    return [_values(tensor, longest) for tensor in tensors]


def with_known_values(
    probes: Sequence[Probe], inputs: Sequence[ArraySpec], values: Sequence[Sequence[Any]]
) -> list[Probe]:
    """Probes in which inputs have known values, and a further one of all of them.

    Args:
        probes: list of `Probe`, changed in place.
        inputs: tuple of `ArraySpec`: the inputs of the model, and its states.
        values: for each input of the model, as `known_values` returns them.
    """
    known = {spec.name: each for spec, each in zip(inputs[: len(values)], values, strict=True) if each}
    found = list(probes)
    batched = [spec.name for spec in inputs if spec.axes[:1] == ("batch",)]
    if known and batched:
        rows = max(map(len, known.values()))
        last = probes[-1].inputs
        repeated = {name: np.resize(last[name], (rows, *last[name].shape[1:])) for name in batched}
        found.append(Probe(last | repeated, f"batch={rows}, known values"))
    for number, probe in enumerate(found):
        _fill(probe, inputs, known, number)
    return found


def fill_in(probe: Probe, inputs: Sequence[ArraySpec], values: Sequence[Sequence[Any]]) -> None:
    """Fills known values into a probe.

    Args:
        probe: `Probe`, changed in place.
        inputs, values: as of `with_known_values`.
    """
    known = {spec.name: each for spec, each in zip(inputs[: len(values)], values, strict=True) if each}
    _fill(probe, inputs, known, 0)


def _fill(probe: Probe, inputs: Sequence[ArraySpec], known: Mapping[str, Sequence[Any]], number: int) -> None:
    for spec in inputs:
        if spec.name in known:
            shape, values = probe.inputs[spec.name].shape, known[spec.name]
            # The first value, a text with tokens, comes first.
            chosen = [values[(5 * number + at) % len(values)] for at in range(math.prod(shape))]
            dtype = "str" if spec.dtype == "string" else spec.dtype
            probe.inputs[spec.name] = np.array(chosen, dtype).reshape(shape)


def _values(tensor: keras.KerasTensor, longest: int | None) -> list[Any]:
    is_string = str(tensor.dtype) == "string"
    bounds = [] if is_string else _bounds(tensor)
    if bounds or (not is_string and "int" not in str(tensor.dtype)):
        return bounds
    lookups = _lookups(tensor, set())
    tokens = [token for each in lookups for token in _sample(each.get_vocabulary(include_special_tokens=False))]
    masks = [mask for each in lookups if (mask := getattr(each, "mask_token", None)) is not None]
    is_closed = any(getattr(each, "num_oov_indices", 1) == 0 for each in lookups)
    if not is_string:
        limits = np.iinfo(str(tensor.dtype))
        values = [*tokens, *masks, *([] if is_closed else _NUMBERS)] if lookups else []
        return [each for each in values if limits.min <= each <= limits.max]
    if any(isinstance(each, keras.layers.TextVectorization) for each in lookups):
        tokens = _texts(tokens, min(longest or _LONGEST_TEXT, _LONGEST_TEXT))
    return [*tokens, *masks, *([] if is_closed else _STRANGERS)]


def _bounds(tensor: keras.KerasTensor) -> list[float]:
    """The bounds of the bins that a tensor is put into, and values between them and beyond the last ones."""
    layers = [operation for operation, _ in readers(tensor) if isinstance(operation, keras.layers.Discretization)]
    found: set[float] = set()
    for bounds in (sorted(map(float, each.bin_boundaries or ())) for each in layers):
        if bounds:
            found |= {bounds[0] - 1.0, *bounds, bounds[-1] + 1.0}
            found |= {(low + high) / 2 for low, high in itertools.pairwise(bounds)}
    return _sample(sorted(found))


def _sample(vocabulary: Sequence[Any]) -> list[Any]:
    return list(vocabulary[:: max(1, len(vocabulary) // _MOST_TOKENS)])


def _texts(tokens: Sequence[str], longest: int) -> list[str]:
    """Texts of these tokens, of different lengths, some in capitals and with punctuation."""
    texts = [" ".join(np.resize(tokens, min(_FIRST_TEXT, longest)))] if tokens else []
    start, size = 0, min(3, longest)
    while start < len(tokens):
        words = tokens[start : start + size]
        texts.append((" ".join(words), ", ".join(words).upper() + "!", "\t" + "  ".join(words) + "\n")[len(texts) % 3])
        start, size = start + size, size % longest + 1
    return texts


def _lookups(tensor: keras.KerasTensor, seen: set[int]) -> list[Any]:
    """The lookups that read a tensor, followed forward through operations that keep its type, and into nested models."""
    found = []
    for node in keras_private.consumers(tensor):
        if id(node) in seen:
            continue
        seen.add(id(node))
        operation, inner = node.operation, keras_private.functional(node.operation)
        if isinstance(operation, _LOOKUPS):
            found += [] if getattr(operation, "invert", False) else [operation]
        elif isinstance(inner, keras.Model) and hasattr(inner, "inputs"):
            position = [tensor is each for each in keras.tree.flatten(node.input_tensors)].index(True)
            found += _lookups(keras.tree.flatten(inner.inputs)[position], seen)
        else:
            results = keras.tree.flatten(node.output_tensors)
            found += [each for result in results if result.dtype == tensor.dtype for each in _lookups(result, seen)]
    return found
