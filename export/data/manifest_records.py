"""Small records of a manifest: signatures, names in the files, weights, files and the tokenizer."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.checks import IncompleteError, is_count, shown

_SHA256 = re.compile(r"[0-9a-f]{64}")


class SignatureRecord(NamedTuple):
    """Inputs and outputs of one signature.

    Args:
        inputs: tuple of `ArraySpec`.
        outputs: tuple of `ArraySpec`.
    """

    inputs: tuple[ArraySpec, ...]
    outputs: tuple[ArraySpec, ...]

    def to_dict(self) -> dict[str, Any]:
        """The record as dicts and lists."""
        return {side: [each.to_dict() for each in specs] for side, specs in self._asdict().items()}

    @classmethod
    def from_dict(cls, record: Any, name: str) -> SignatureRecord:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            name: name of the signature, for the error.

        Raises:
            IncompleteError: a side is missing, names an array twice, or an `ArraySpec` is wrong; or there are no outputs.
        """
        where = f"signature '{shown(name)}'"
        sides = []
        for side in cls._fields:
            records = record.get(side) if isinstance(record, dict) else None
            if not isinstance(records, list):
                raise IncompleteError(f"{where} has no list of {side}")
            specs = tuple(ArraySpec.from_dict(each, where) for each in records)
            if len({each.name for each in specs}) < len(specs):
                raise IncompleteError(f"{where} names one of its {side} twice")
            sides.append(specs)
        if not sides[1]:
            raise IncompleteError(f"{where} has no outputs")
        return cls(*sides)


class FileNames(NamedTuple):
    """Names of one signature in the file of one format.

    Args:
        inputs: dict of input name to the name in the file.
        outputs: dict of output name to the name in the file.
    """

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """The names as dicts."""
        return {side: dict(names) for side, names in self._asdict().items()}

    @classmethod
    def from_dict(cls, record: Any, where: str) -> FileNames:
        """The names that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            where: what has the names, for the error.

        Raises:
            IncompleteError: a side is missing, a name is no text, or two have the same name in the file.
        """
        if not isinstance(record, dict):
            raise IncompleteError(where)
        for side in cls._fields:
            found = record.get(side)
            if not isinstance(found, dict) or not all(isinstance(each, str) and each for each in found.values()):
                raise IncompleteError(f"{where}, {side}")
            if len(set(found.values())) < len(found):
                raise IncompleteError(f"{where}, {side}")
        return cls(*(record[side] for side in cls._fields))


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

    def to_dict(self) -> dict[str, Any]:
        """The record as a dict."""
        rounded = {} if self.rounded is None else {"rounded": self.rounded}
        names = {"computed": list(self.computed), "unaccounted": list(self.unaccounted)}
        return {"equal": self.equal, **rounded, **names}

    @classmethod
    def from_dict(cls, record: Any, artifact: str) -> WeightsRecord:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            artifact: name of the format, for the error.

        Raises:
            IncompleteError: a number or a list of names is missing, or there is another field.
        """
        if not isinstance(record, dict) or record.keys() - {"rounded"} != {"equal", "computed", "unaccounted"}:
            raise IncompleteError(f"artifact '{shown(artifact)}': weights")
        names = [record["computed"], record["unaccounted"]]
        are_names = all(isinstance(each, list) and all(isinstance(name, str) for name in each) for each in names)
        if not are_names or not is_count(record["equal"]) or not is_count(record.get("rounded", 0)):
            raise IncompleteError(f"artifact '{shown(artifact)}': weights")
        return cls(record["equal"], tuple(names[0]), tuple(names[1]), record.get("rounded"))


@dataclasses.dataclass(frozen=True)
class FileRecord:
    """Size and hash of one file.

    Args:
        size: bytes.
        sha256: SHA-256 in hexadecimal.
    """

    size: int
    sha256: str

    def to_dict(self) -> dict[str, Any]:
        """The record as a dict."""
        return {"bytes": self.size, "sha256": self.sha256}

    @classmethod
    def from_dict(cls, record: Any, name: str) -> FileRecord:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            name: path of the file, for the error.

        Raises:
            IncompleteError: the size or the hash is missing.
        """
        if not isinstance(record, dict) or not is_count(record.get("bytes")):
            raise IncompleteError(f"the record of file '{shown(name)}' has no size")
        if not isinstance(record.get("sha256"), str) or not _SHA256.fullmatch(record["sha256"]):
            raise IncompleteError(f"the record of file '{shown(name)}' has no sha256")
        return cls(record["bytes"], record["sha256"])


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
    options: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The record as a dict."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> TokenizerRecord:
        """The record that `to_dict` wrote.

        Raises:
            IncompleteError: names the field that is missing.
        """
        for field, kind in (("path", str), ("fingerprint", str), ("options", dict)):
            if not isinstance(record.get(field), kind):
                raise IncompleteError(f"the record of the tokenizer lacks '{field}'")
        return cls(record["path"], record["fingerprint"], record["options"])
