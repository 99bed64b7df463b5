"""What a manifest says of the files of one format."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TypeGuard

from keras_transformer.export.data.checks import (
    IncompleteError,
    is_count,
    is_list,
    is_number,
    is_object,
    json_object,
    shown,
)
from keras_transformer.export.data.integer_share import IntegerShare
from keras_transformer.export.data.manifest_records import FileNames, SignatureRecord, WeightsRecord
from keras_transformer.export.data.parity import Parity
from keras_transformer.export.data.preprocessing.steps import Preprocessing
from keras_transformer.utils.types import JsonObject


@dataclasses.dataclass(frozen=True)
class ArtifactRecord:
    """The files of one format, and what their verification found.

    Args:
        signatures: dict of signature name to the path, in the bundle, of its file or folder.
        size: bytes of the files.
        names: dict of signature name to `FileNames`; empty in manifests of earlier versions.
        preprocessing: dict of signature name to the `Preprocessing` in front of its file; empty where files contain it, or
            there is none.
        weights: `WeightsRecord`, or None where the weights were not compared.
        milliseconds: dict of signature name to the time of a call, or None.
        parity: tuple of `Parity`, or None for files that were not run.
        float_size: bytes of the float files that were quantized, or None.
        quantization: the mode of quantization; None for float files.
        tolerance: largest change of an output that the quantization was allowed, or None.
        integers: `IntegerShare` of quantized files, or None where they are not read.
        float_files: what became of the float files that were not run, or None.
        behavior: dict of what quantization changed in the predictions, or None.
        evaluation: dict of what quantization changed in the score of the task, or None.
        known_differences: what the files compute otherwise than Keras for unusual numbers, a text each.

    Example:

    >>> ArtifactRecord({"serve": "model.onnx"}, size=512, parity=(Parity("serve", "y", 1e-7, 1.0, 1e-7),)).ratio
    1e-07
    """

    signatures: Mapping[str, str]
    size: int
    names: Mapping[str, FileNames] = dataclasses.field(default_factory=dict[str, FileNames])
    preprocessing: Mapping[str, Preprocessing] = dataclasses.field(default_factory=dict[str, Preprocessing])
    weights: WeightsRecord | None = None
    milliseconds: Mapping[str, float] | None = None
    parity: tuple[Parity, ...] | None = None
    float_size: int | None = None
    quantization: str | None = None
    tolerance: float | None = None
    integers: IntegerShare | None = None
    float_files: str | None = None
    behavior: dict[str, float] | None = None
    evaluation: JsonObject | None = None
    known_differences: tuple[str, ...] = ()

    @property
    def paths(self) -> list[str]:
        """The paths of the files, each once, in the order of the signatures."""
        return list(dict.fromkeys(self.signatures.values()))

    @property
    def ratio(self) -> float:
        """The largest difference of all outputs, as a share of their scale."""
        return max((each.ratio for each in self.parity or ()), default=0.0)

    def to_dict(self) -> dict[str, object]:
        """The record as dicts, lists, strings and numbers. The weights follow what they are compared with."""
        weights = None if self.weights is None else self.weights.to_dict()
        parity = None if self.parity is None else [each.to_dict() for each in self.parity]
        is_float = self.quantization is None
        fields: list[tuple[str, object]] = [
            ("signatures", dict(self.signatures)),
            ("names", {name: each.to_dict() for name, each in self.names.items()} or None),
            ("preprocessing", {name: each.to_dict() for name, each in self.preprocessing.items()} or None),
            ("bytes", self.size),
            ("weights", weights if is_float else None),
            ("milliseconds", None if self.milliseconds is None else dict(self.milliseconds)),
            ("parity", parity),
            ("float_bytes", self.float_size),
            ("quantization", self.quantization),
            ("tolerance", self.tolerance),
            ("weights", None if is_float else weights),
            ("integers", None if self.integers is None else self.integers.to_dict()),
            ("float_files", self.float_files),
            ("behavior", self.behavior),
            ("evaluation", self.evaluation),
            ("known_differences", list(self.known_differences) or None),
        ]
        return {name: value for name, value in fields if value is not None}

    @classmethod
    def from_dict(cls, record: object, format: str) -> ArtifactRecord:
        """The record that `to_dict` wrote.

        Args:
            record: what was parsed from JSON.
            format: name of the format, for the error.

        Raises:
            IncompleteError: a field is missing, or out of its range.
        """
        where = f"artifact '{shown(format)}'"
        fields = record if is_object(record) else {}
        signatures, size = fields.get("signatures"), fields.get("bytes")
        if not is_object(signatures) or not signatures or not is_count(size):
            raise IncompleteError(f"{where} lacks its signatures or its size")
        tolerance, float_size = fields.get("tolerance"), fields.get("float_bytes")
        if not _is_tolerance(tolerance, "tolerance" in fields) or not (float_size is None or is_count(float_size)):
            raise IncompleteError(f"{where}: tolerance {shown(tolerance)} or float_bytes")
        parity, names, preprocessing = (
            fields.get("parity", []),
            fields.get("names", {}),
            fields.get("preprocessing", {}),
        )
        if not is_list(parity):
            raise IncompleteError(f"{where}: parity")
        if not is_object(names) or not is_object(preprocessing):
            raise IncompleteError(f"{where}: names or preprocessing")
        of = f"{where}: names of signature"
        return cls(
            size=size,
            names={name: FileNames.from_dict(each, f"{of} '{shown(name)}'") for name, each in names.items()},
            preprocessing={name: Preprocessing.from_dict(each, where) for name, each in preprocessing.items()},
            weights=WeightsRecord.from_dict(fields["weights"], format) if "weights" in fields else None,
            milliseconds=json_object(fields.get("milliseconds")),
            parity=tuple(Parity.from_dict(each, where) for each in parity) if "parity" in fields else None,
            float_size=float_size,
            quantization=_text(fields.get("quantization")),
            tolerance=tolerance,
            integers=IntegerShare.from_dict(fields["integers"], where) if "integers" in fields else None,
            float_files=_text(fields.get("float_files")),
            behavior=json_object(fields.get("behavior")),
            evaluation=json_object(fields.get("evaluation")),
            known_differences=_texts(fields.get("known_differences"), where),
            signatures=_paths(signatures, where),
        )

    def check_signatures(self, format: str, signatures: Mapping[str, SignatureRecord]) -> None:
        """Checks that the files are those of signatures, and have the names of their inputs and outputs.

        Args:
            format: name of the format, for the error.
            signatures: those of the manifest.

        Raises:
            IncompleteError: names the signature.
        """
        where = f"artifact '{shown(format)}'"
        for name in self.signatures:
            if name not in signatures:
                raise IncompleteError(f"{where}: signature '{shown(name)}'")
        for name, each in self.preprocessing.items():
            if name not in self.signatures:
                raise IncompleteError(f"{where}: preprocessing of signature '{shown(name)}'")
            each.check_inputs([spec.name for spec in signatures[name].inputs], where)
        for name, names in self.names.items():
            if name not in self.signatures:
                raise IncompleteError(f"{where}: names of signature '{shown(name)}'")
            for side, found, specs in zip(names._fields, names, self._of_file(name, signatures[name]), strict=True):
                if set(found) != {each.name for each in specs}:
                    raise IncompleteError(f"{where}: names of signature '{shown(name)}', {side}")

    def _of_file(self, name: str, signature: SignatureRecord) -> SignatureRecord:
        """The inputs and outputs of the file of a signature."""
        return signature._replace(inputs=self.preprocessing[name].outputs) if name in self.preprocessing else signature


def _paths(signatures: Mapping[str, object], where: str) -> dict[str, str]:
    paths: dict[str, str] = {}
    for name, path in signatures.items():
        if not isinstance(path, str):
            raise IncompleteError(f"{where}: signature '{shown(name)}'")
        paths[name] = path
    return paths


def _is_tolerance(value: object, is_given: bool) -> TypeGuard[float | None]:
    return is_number(value) and 0 < value < math.inf if is_given else value is None


def _texts(value: object, where: str) -> tuple[str, ...]:
    texts = value if is_list(value) else ()
    if value is not None and not (is_list(value) and all(isinstance(each, str) for each in texts)):
        raise IncompleteError(f"{where}: known_differences")
    return tuple(map(str, texts))


def _text(value: object) -> str | None:
    return None if value is None else str(value)
