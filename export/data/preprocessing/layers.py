"""What each layer of preprocessing computes, as a manifest says it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from keras_transformer.export.data.checks import IncompleteError, is_count, is_list, is_object, is_tuple

# How `TextVectorization` cuts a text into tokens, and which characters it takes out.
STANDARDIZATIONS = ("lower_and_strip_punctuation", "lower", "strip_punctuation", None)
SPLITS = ("whitespace", "character", None)


@dataclasses.dataclass(frozen=True)
class Lookup:
    """`keras.layers.StringLookup` or `IntegerLookup`: the index of each token in a vocabulary.

    Args:
        vocabulary: path, in the bundle, of a JSON list of the tokens: strings or integers.
        first_index: index of the first token.
        unknown_index: index of a token that the vocabulary lacks, or the first one of several.
        unknown_count: int >= 0. How many indices such tokens have: 0 refuses them; of several, the remainder of a hash, or
            of the integer, is one.
        hashes: bool. Whether it is that of a hash: FarmHash of the text (of an integer: of its decimal digits), or SipHash
            with a salt.
        salt: the two keys of SipHash, or None.
        mask: the token that has the index `mask_index`, or None.
        mask_index: int.
    """

    layer: ClassVar[str] = "Lookup"
    vocabulary: str
    first_index: int = 1
    unknown_index: int = 0
    unknown_count: int = 1
    hashes: bool = True
    salt: tuple[int, int] | None = None
    mask: str | int | None = None
    mask_index: int = 0

    def check(self) -> None:
        """Raises IncompleteError where a field is out of its range."""
        counts = self.first_index, self.unknown_index, self.unknown_count, self.mask_index
        _require(_is_text(self.vocabulary) and self.vocabulary != "", "vocabulary")
        _require(all(is_count(each) for each in counts) and self.hashes in (True, False), "indices")
        _require(_is_salt(self.salt), "salt")
        _require(_is_mask(self.mask), "mask")


@dataclasses.dataclass(frozen=True)
class TextVectorization:
    """`keras.layers.TextVectorization`: the tokens of each text, and their indices in a vocabulary.

    Args:
        lookup: `Lookup` of the tokens.
        standardize: "lower" makes A to Z lowercase, "strip_punctuation" takes ASCII punctuation out,
            "lower_and_strip_punctuation" does both; None does neither.
        split: "whitespace" (of ASCII) or "character"; None for inputs that are rows of tokens.
        ngrams: numbers of tokens that are joined by a space, the n-grams of each number after those of the one before; None
            for single tokens.
        length: columns of the result, or None for those of the longest row, at least one.
        padding: index in the columns after the last token.
    """

    layer: ClassVar[str] = "TextVectorization"
    lookup: Lookup
    standardize: str | None = "lower_and_strip_punctuation"
    split: str | None = "whitespace"
    ngrams: tuple[int, ...] | None = None
    length: int | None = None
    padding: int = 0

    def check(self) -> None:
        """Raises IncompleteError where a field is out of its range."""
        self.lookup.check()
        _require(self.standardize in STANDARDIZATIONS and self.split in SPLITS, "standardize or split")
        _require(self.ngrams is None or all(is_count(each) and each > 0 for each in self.ngrams), "ngrams")
        _require((self.length is None or is_count(self.length)) and is_count(self.padding), "length or padding")


@dataclasses.dataclass(frozen=True)
class Hashing:
    """`keras.layers.Hashing`: the bin of each value by FarmHash of its text, or by SipHash with a salt.

    Args:
        num_bins: int >= 1.
        mask: the value in bin 0, which others then do not share, or None.
        salt: the two keys of SipHash, or None.
    """

    layer: ClassVar[str] = "Hashing"
    num_bins: int
    mask: str | int | None = None
    salt: tuple[int, int] | None = None

    def check(self) -> None:
        """Raises IncompleteError where a field is out of its range."""
        _require(is_count(self.num_bins) and self.num_bins > 0 and _is_salt(self.salt), "num_bins or salt")
        _require(_is_mask(self.mask), "mask")


@dataclasses.dataclass(frozen=True)
class HashedCrossing:
    """`keras.layers.HashedCrossing`: the bin of a combination of strings and integers.

    Args:
        num_bins: int >= 1.
    """

    layer: ClassVar[str] = "HashedCrossing"
    num_bins: int

    def check(self) -> None:
        """Raises IncompleteError where a field is out of its range."""
        _require(is_count(self.num_bins) and self.num_bins > 0, "num_bins")


@dataclasses.dataclass(frozen=True)
class Discretization:
    """`keras.layers.Discretization`: how many boundaries are not above a value.

    Args:
        boundaries: floats in increasing order.
    """

    layer: ClassVar[str] = "Discretization"
    boundaries: tuple[float, ...]

    def check(self) -> None:
        """Raises IncompleteError where a field is out of its range."""
        _require(all(isinstance(each, float) for each in self.boundaries), "boundaries")


Operation = Lookup | TextVectorization | Hashing | HashedCrossing | Discretization
OPERATIONS: dict[str, type[Operation]] = {
    each.layer: each for each in (Lookup, TextVectorization, Hashing, HashedCrossing, Discretization)
}


def lookup_of(operation: Operation) -> Lookup | None:
    """The lookup of an operation, or None where it has no vocabulary."""
    if isinstance(operation, TextVectorization):
        return operation.lookup
    return operation if isinstance(operation, Lookup) else None


def operation_of(kind: type[Operation], fields: Mapping[str, object], where: str) -> Operation:
    """The operation of the fields of a record.

    Args:
        kind: class of the operation.
        fields: dict of name to value, as parsed from JSON. Those that are not known are left out.
        where: what has the operation, for the error.

    Raises:
        IncompleteError: a field is missing, or out of its range.
    """
    names = {each.name for each in dataclasses.fields(kind)}
    values = {name: tuple(value) if is_list(value) else value for name, value in fields.items() if name in names}
    try:
        if is_object(values.get("lookup")):
            values["lookup"] = operation_of(Lookup, values["lookup"], where)  # type: ignore[arg-type]
        operation = kind(**values)  # type: ignore[arg-type]
        operation.check()
    except (TypeError, AttributeError, IncompleteError) as error:
        raise IncompleteError(f"{where}: {error}") from None
    return operation


def _require(is_right: bool, field: str) -> None:
    if not is_right:
        raise IncompleteError(field)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_mask(value: object) -> bool:
    return value is None or _is_text(value) or _is_integer(value)


def _is_salt(value: object) -> bool:
    return value is None or (is_tuple(value) and len(value) == 2 and all(_is_integer(each) for each in value))
