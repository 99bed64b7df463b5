"""Preprocessing in front of a file: what layers of strings and hashes compute, with numpy alone."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.data.preprocessing.layers import (
    Discretization,
    HashedCrossing,
    Hashing,
    Lookup,
    Operation,
    TextVectorization,
)
from keras_transformer.export.data.preprocessing.steps import Preprocessing, Step
from keras_transformer.export.errors import InputError
from keras_transformer.export.runtime.hashing import cross_hash, farm_hash, sip_hash
from keras_transformer.export.runtime.runtime import Runtime

_PUNCTUATION = re.compile(rb"""[!"#$%&()*+,\-./:;<=>?@\[\\\]^_`{|}~']""")
Vocabularies = Mapping[str, Sequence[str] | Sequence[int]]
_Token = Any  # str or int, as in a vocabulary.


def preprocessor(preprocessing: Preprocessing, vocabularies: Vocabularies) -> Callable[..., dict[str, np.ndarray]]:
    """A function from the inputs of a signature to those of its file.

    Args:
        preprocessing: `Preprocessing`.
        vocabularies: dict of path to the tokens, as `read_vocabularies` returns it.

    Returns:
        A function that takes a dict of name to numpy array, and returns one.

    Example:

    >>> from keras_transformer.export.data.array_spec import ArraySpec
    >>> steps = (Step(("color",), "color", "int64", Lookup("colors.json")),)
    >>> record = Preprocessing(steps, (ArraySpec("color", "int64", (None,), ("batch",)),))
    >>> preprocess = preprocessor(record, {"colors.json": ["red", "green"]})
    >>> preprocess({"color": np.array(["green", "blue"])})["color"].tolist()
    [2, 0]
    """
    functions = [(each, _function(each.operation, vocabularies)) for each in preprocessing.steps]

    def preprocess(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        known = dict(arrays)
        for step, function in functions:
            known[step.output] = _result(step, function, [known[name] for name in step.inputs])
        return {each.name: known[each.name] for each in preprocessing.outputs}

    return preprocess


def preprocessed_runtime(runtime: Runtime, preprocess: Callable[..., dict[str, np.ndarray]]) -> Runtime:
    """A runtime that takes the inputs of a signature, and calls a file that takes what preprocessing makes of them."""
    return lambda arrays: runtime(preprocess(arrays))


def _result(step: Step, function: Callable[..., np.ndarray], arrays: list[np.ndarray]) -> np.ndarray:
    try:
        return np.ascontiguousarray(function(*arrays)).astype(step.dtype)
    except _UnknownTokenError as error:
        raise InputError(", ".join(step.inputs), "tokens of the vocabulary", repr(error.args[0])) from None


class _UnknownTokenError(ValueError):
    """A token that is not in a vocabulary without an index for others."""


def _function(operation: Operation, vocabularies: Vocabularies) -> Callable[..., np.ndarray]:
    """What an operation computes, as a function of arrays."""
    if isinstance(operation, Lookup):
        return functools.partial(_each, _index(operation, vocabularies))
    if isinstance(operation, TextVectorization):
        return functools.partial(_vectorized, operation, _index(operation.lookup, vocabularies))
    if isinstance(operation, Hashing):
        return functools.partial(_hashed, operation)
    if isinstance(operation, HashedCrossing):
        return functools.partial(_crossed, operation)
    return functools.partial(_discretized, operation)


def _each(function: Callable[[_Token], int], array: np.ndarray) -> np.ndarray:
    """Integers from a function of each element."""
    return np.array([function(each) for each in array.ravel().tolist()], "int64").reshape(array.shape)


def _index(lookup: Lookup, vocabularies: Vocabularies) -> Callable[[_Token], int]:
    """A function from a token to its index."""
    vocabulary = vocabularies[lookup.vocabulary]
    table = {token: number for number, token in enumerate(vocabulary, lookup.first_index)}
    if lookup.mask is not None:
        table[lookup.mask] = lookup.mask_index

    def index(token: _Token) -> int:
        found = table.get(token)
        return _unknown(lookup, token) if found is None else found

    return index


def _unknown(lookup: Lookup, token: _Token) -> int:
    """The index of a token that is not in the vocabulary."""
    if lookup.unknown_count == 0:
        raise _UnknownTokenError(token)
    if lookup.unknown_count == 1:
        return lookup.unknown_index
    number = _hash(token, lookup.salt) if lookup.hashes else token
    return lookup.unknown_index + number % lookup.unknown_count


def _hash(value: _Token, salt: tuple[int, int] | None) -> int:
    content = str(value).encode()
    return farm_hash(content) if salt is None else sip_hash(content, salt)


def _vectorized(operation: TextVectorization, index: Callable[[_Token], int], texts: np.ndarray) -> np.ndarray:
    rows = [[index(token) for token in tokens] for tokens in _tokens(operation, texts)]
    length = operation.length
    if length is None:
        length = max([1, *map(len, rows)])  # Runtimes take no empty arrays.
    indices = np.full((len(rows), length), operation.padding, "int64")
    for row, found in zip(indices, rows, strict=True):
        row[: len(found)] = found[:length]
    return indices


def _tokens(operation: TextVectorization, texts: np.ndarray) -> list[list[str]]:
    """The tokens, or n-grams, of each text."""
    if operation.split is None:
        rows = [[_standardized(operation, text).decode() for text in row] for row in texts.tolist()]
    else:
        contents = [_standardized(operation, text) for text in texts.ravel().tolist()]
        is_words = operation.split == "whitespace"
        rows = [[each.decode() for each in text.split()] if is_words else list(text.decode()) for text in contents]
    if operation.ngrams is None:
        return rows
    return [[each for count in operation.ngrams for each in _ngrams(row, count)] for row in rows]


def _standardized(operation: TextVectorization, text: str) -> bytes:
    """A text in UTF-8; lowercase and punctuation are those of ASCII, whose characters are bytes there."""
    content, standardize = text.encode(), operation.standardize or ""
    content = content.lower() if "lower" in standardize else content
    return _PUNCTUATION.sub(b"", content) if "strip_punctuation" in standardize else content


def _ngrams(tokens: list[str], count: int) -> list[str]:
    return [" ".join(tokens[start : start + count]) for start in range(len(tokens) - count + 1)]


def _hashed(operation: Hashing, array: np.ndarray) -> np.ndarray:
    has_own_bin = operation.mask is not None and operation.num_bins > 1
    bins = operation.num_bins - has_own_bin

    def bin_of(value: _Token) -> int:
        if has_own_bin and value == operation.mask:
            return 0
        number = int(value) if isinstance(value, float) else value
        return _hash(number, operation.salt) % bins + has_own_bin

    return _each(bin_of, array)


def _crossed(operation: HashedCrossing, *arrays: np.ndarray) -> np.ndarray:
    rows = zip(*(array.ravel().tolist() for array in arrays), strict=True)
    bins = [cross_hash(map(_fingerprint, row)) % operation.num_bins for row in rows]
    return np.array(bins, "int64").reshape(arrays[0].shape)


def _fingerprint(value: _Token) -> int:
    return farm_hash(value.encode()) if isinstance(value, str) else value


def _discretized(operation: Discretization, array: np.ndarray) -> np.ndarray:
    return np.searchsorted(np.array(operation.boundaries, "float32"), array.astype("float32"), side="right")
