"""What a manifest says of the preprocessing in front of a file: layers that the format cannot contain."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.checks import IncompleteError, is_count, is_list, is_names, is_object, shown

# How `TextVectorization` cuts a text into tokens, and which characters it takes out.
STANDARDIZATIONS = ("lower_and_strip_punctuation", "lower", "strip_punctuation", None)
SPLITS = ("whitespace", "character", None)
_INTEGERS = "int32", "int64"


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
        _require(isinstance(self.vocabulary, str) and bool(self.vocabulary), "vocabulary")
        _require(all(is_count(each) for each in counts) and isinstance(self.hashes, bool), "indices")
        _require(_is_salt(self.salt), "salt")
        _require(self.mask is None or isinstance(self.mask, str) or _is_integer(self.mask), "mask")


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
        _require(self.mask is None or isinstance(self.mask, str) or _is_integer(self.mask), "mask")


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
_OPERATIONS: dict[str, type[Operation]] = {
    each.layer: each for each in (Lookup, TextVectorization, Hashing, HashedCrossing, Discretization)
}


class Step(NamedTuple):
    """One layer of the preprocessing.

    Args:
        inputs: names of what it reads: inputs of the model, or outputs of steps before it.
        output: name of what it computes.
        dtype: that of the output: "int32" or "int64".
        operation: what it computes.
    """

    inputs: tuple[str, ...]
    output: str
    dtype: str
    operation: Operation

    def to_dict(self) -> dict[str, object]:
        """The step as dicts, lists, strings and numbers."""
        fields = dataclasses.asdict(self.operation)
        return {
            "layer": self.operation.layer,
            "inputs": list(self.inputs),
            "output": self.output,
            "dtype": self.dtype,
        } | {name: list(value) if isinstance(value, tuple) else value for name, value in _plain(fields).items()}

    @classmethod
    def from_dict(cls, record: object, where: str) -> Step:
        """The step that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            where: what has the step, for the error.

        Raises:
            IncompleteError: the layer is not known, or a field is missing or out of its range.
        """
        fields = dict(record) if is_object(record) else {}
        layer, inputs, output, dtype = (fields.pop(name, None) for name in ("layer", "inputs", "output", "dtype"))
        operation = _OPERATIONS.get(layer) if isinstance(layer, str) else None
        if operation is None or not is_names(inputs) or not isinstance(output, str) or dtype not in _INTEGERS:
            raise IncompleteError(f"{where}: a step of layer {shown(layer)}")
        return cls(
            tuple(inputs), output, str(dtype), _operation(operation, fields, f"{where}, {layer} '{shown(output)}'")
        )


class Preprocessing(NamedTuple):
    """The layers between the inputs of a signature and those of its file, in the order in which they run.

    Args:
        steps: tuple of `Step`.
        outputs: tuple of `ArraySpec`: the inputs of the file. Those that no step computes are inputs of the signature.

    Example:

    >>> lookup = Lookup("preprocessing/color.json")
    >>> outputs = (ArraySpec("color", "int64", (None,), ("batch",)),)
    >>> found = Preprocessing((Step(("color",), "color", "int64", lookup),), outputs)
    >>> Preprocessing.from_dict(found.to_dict(), "the record") == found
    True
    """

    steps: tuple[Step, ...]
    outputs: tuple[ArraySpec, ...]

    @property
    def paths(self) -> list[str]:
        """Paths of the vocabularies in the bundle, each once."""
        lookups = [lookup_of(each.operation) for each in self.steps]
        return list(dict.fromkeys(each.vocabulary for each in lookups if each is not None))

    def to_dict(self) -> dict[str, object]:
        """The record as dicts, lists, strings and numbers."""
        return {"steps": [each.to_dict() for each in self.steps], "outputs": [each.to_dict() for each in self.outputs]}

    @classmethod
    def from_dict(cls, record: object, where: str) -> Preprocessing:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            where: what has the preprocessing, for the error.

        Raises:
            IncompleteError: a step or an output is wrong.
        """
        fields = record if is_object(record) else {}
        steps, outputs = fields.get("steps"), fields.get("outputs")
        if not is_list(steps) or not is_list(outputs):
            raise IncompleteError(f"{where}: preprocessing without steps or outputs")
        return cls(
            tuple(Step.from_dict(each, where) for each in steps),
            tuple(ArraySpec.from_dict(each, where) for each in outputs),
        )

    def check_inputs(self, names: Iterable[str], where: str) -> None:
        """Checks that every step reads what is known before it, and that every output is known at the end.

        Args:
            names: names of the inputs of the signature.
            where: what has the preprocessing, for the error.

        Raises:
            IncompleteError: names what is not known.
        """
        known = set(names)
        for step in self.steps:
            _check_known(step.inputs, known, where)
            known.add(step.output)
        _check_known([each.name for each in self.outputs], known, where)

    def without(self, inside: Iterable[str], inputs: Mapping[str, ArraySpec]) -> Preprocessing:
        """The preprocessing of a file that itself has some of the steps.

        Args:
            inside: names of the outputs of these steps; each reads one input of the signature.
            inputs: dict of name to `ArraySpec` of the inputs of the signature.
        """
        moved = {each.output: inputs[each.inputs[0]] for each in self.steps if each.output in set(inside)}
        steps = tuple(each for each in self.steps if each.output not in moved)
        return Preprocessing(steps, tuple(moved.get(each.name, each) for each in self.outputs))


def lookup_of(operation: Operation) -> Lookup | None:
    """The lookup of an operation, or None where it has no vocabulary."""
    return (
        operation.lookup
        if isinstance(operation, TextVectorization)
        else operation
        if isinstance(operation, Lookup)
        else None
    )


def _operation(kind: type[Operation], fields: Mapping[str, object], where: str) -> Operation:
    names = {each.name for each in dataclasses.fields(kind)}
    values = {name: tuple(value) if is_list(value) else value for name, value in fields.items() if name in names}
    try:
        if is_object(values.get("lookup")):
            values["lookup"] = _operation(Lookup, values["lookup"], where)  # type: ignore[arg-type]
        operation = kind(**values)  # type: ignore[arg-type]
        operation.check()
    except (TypeError, AttributeError, IncompleteError) as error:
        raise IncompleteError(f"{where}: {error}") from None
    return operation


def _plain(value: dict[str, object]) -> dict[str, object]:
    return {name: _plain(each) if is_object(each) else each for name, each in value.items()}


def _check_known(names: Iterable[str], known: set[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise IncompleteError(f"{where}: preprocessing reads '{shown(name)}', which nothing computes")


def _require(is_right: bool, field: str) -> None:
    if not is_right:
        raise IncompleteError(field)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_salt(value: object) -> bool:
    return value is None or (isinstance(value, tuple) and len(value) == 2 and all(_is_integer(each) for each in value))
