"""Small records of a manifest: signatures, names in the files, weights, files and the tokenizer."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import NamedTuple

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.checks import (
    IncompleteError,
    is_count,
    is_list,
    is_names,
    is_object,
    json_object,
    shown,
)

_SHA256 = re.compile(r"[0-9a-f]{64}")


class SignatureRecord(NamedTuple):
    """Inputs and outputs of one signature.

    Args:
        inputs: tuple of `ArraySpec`.
        outputs: tuple of `ArraySpec`.
    """

    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]

    def to_dict(self) -> dict[str, list[dict[str, object]]]:
        """The record as dicts and lists."""
        return {side: [each.to_dict() for each in specs] for side, specs in self._asdict().items()}

    @classmethod
    def from_dict(cls, record: object, name: str) -> SignatureRecord:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            name: name of the signature, for the error.

        Raises:
            IncompleteError: a side is missing, names an array twice, or an `ArraySpec` is wrong; or there are no outputs.
        """
        where = f"signature '{shown(name)}'"
        fields = record if is_object(record) else {}
        inputs, outputs = (_specs(fields.get(side), side, where) for side in cls._fields)
        if not outputs:
            raise IncompleteError(f"{where} has no outputs")
        return cls(inputs, outputs)


def _specs(records: object, side: str, where: str) -> tuple[ArraySpec, ...]:
    """The inputs or the outputs of a signature."""
    if not is_list(records):
        raise IncompleteError(f"{where} has no list of {side}")
    specs = tuple(ArraySpec.from_dict(each, where) for each in records)
    if len({each.name for each in specs}) < len(specs):
        raise IncompleteError(f"{where} names one of its {side} twice")
    return specs


class FileNames(NamedTuple):
    """Names of one signature in the file of one format.

    Args:
        inputs: dict of input name to the name in the file.
        outputs: dict of output name to the name in the file.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def to_dict(self) -> dict[str, dict[str, str]]:
        """The names as dicts."""
        return {side: dict(names) for side, names in self._asdict().items()}

    @classmethod
    def from_dict(cls, record: object, where: str) -> FileNames:
        """The names that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            where: what has the names, for the error.

        Raises:
            IncompleteError: a side is missing, a name is no text, or two have the same name in the file.
        """
        if not is_object(record):
            raise IncompleteError(where)
        inputs, outputs = (_names(record.get(side), f"{where}, {side}") for side in cls._fields)
        return cls(inputs, outputs)


def _names(record: object, where: str) -> dict[str, str]:
    """The names of the inputs or of the outputs in a file, each a text of its own."""
    if not is_object(record):
        raise IncompleteError(where)
    names = {name: each for name, each in record.items() if isinstance(each, str) and each}
    if len(set(names.values())) < len(record):
        raise IncompleteError(where)
    return names


@dataclasses.dataclass(frozen=True)
class WeightsRecord:
    """What the comparison of the weights in files with the Keras variables, or with the float weights, found.

    Args:
        equal: number of weights that are equal bit for bit.
        computed: names of those of which the files have only what is computed from them.
        unaccounted: names of weights and constants that the files compute in a way that is not known.
        rounded: number of weights that are within half a step of their scale; None for float files.
    """

    equal: int
    computed: tuple[str, ...] = ()
    unaccounted: tuple[str, ...] = ()
    rounded: int | None = None

    def to_dict(self) -> dict[str, object]:
        """The record as a dict."""
        rounded = {} if self.rounded is None else {"rounded": self.rounded}
        names = {"computed": list(self.computed), "unaccounted": list(self.unaccounted)}
        return {"equal": self.equal, **rounded, **names}

    @classmethod
    def from_dict(cls, record: object, artifact: str) -> WeightsRecord:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            artifact: name of the format, for the error.

        Raises:
            IncompleteError: a number or a list of names is missing, or there is another field.
        """
        if not is_object(record) or record.keys() - {"rounded"} != {"equal", "computed", "unaccounted"}:
            raise IncompleteError(f"artifact '{shown(artifact)}': weights")
        equal, computed, unaccounted = record["equal"], record["computed"], record["unaccounted"]
        rounded = record.get("rounded", 0)
        if not (is_names(computed) and is_names(unaccounted) and is_count(equal) and is_count(rounded)):
            raise IncompleteError(f"artifact '{shown(artifact)}': weights")
        return cls(equal, tuple(computed), tuple(unaccounted), rounded if "rounded" in record else None)


@dataclasses.dataclass(frozen=True)
class FileRecord:
    """Size and hash of one file.

    Args:
        size: bytes.
        sha256: SHA-256 in hexadecimal.
    """

    size: int
    sha256: str

    def to_dict(self) -> dict[str, object]:
        """The record as a dict."""
        return {"bytes": self.size, "sha256": self.sha256}

    @classmethod
    def from_dict(cls, record: object, name: str) -> FileRecord:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            name: path of the file, for the error.

        Raises:
            IncompleteError: the size or the hash is missing.
        """
        fields = record if is_object(record) else {}
        size, sha256 = fields.get("bytes"), fields.get("sha256")
        if not is_count(size):
            raise IncompleteError(f"the record of file '{shown(name)}' has no size")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise IncompleteError(f"the record of file '{shown(name)}' has no sha256")
        return cls(size, sha256)


@dataclasses.dataclass(frozen=True)
class TokenizerRecord:
    """The tokenizer of a bundle.

    Args:
        path: the folder of its files.
        fingerprint: what tells it from other tokenizers.
        options: dict of how texts are encoded.
    """

    path: str
    fingerprint: str
    options: dict[str, object]

    def to_dict(self) -> dict[str, object]:
        """The record as a dict."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> TokenizerRecord:
        """The record that `to_dict` wrote.

        Raises:
            IncompleteError: names the field that is missing.
        """
        path, fingerprint = _text(record, "path"), _text(record, "fingerprint")
        options = json_object(record.get("options"))
        if options is None:
            raise IncompleteError("the record of the tokenizer lacks 'options'")
        return cls(path, fingerprint, options)


def _text(record: Mapping[str, object], field: str) -> str:
    value = record.get(field)
    if not isinstance(value, str):
        raise IncompleteError(f"the record of the tokenizer lacks '{field}'")
    return value
