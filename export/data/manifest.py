"""`manifest.json`, the description of a bundle, as records. Reading them is validating them."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.checks import IncompleteError, is_count, is_names, is_object, json_object, shown
from keras_transformer.export.data.domain import Domain
from keras_transformer.export.data.manifest_records import FileRecord, SignatureRecord, TokenizerRecord
from keras_transformer.export.data.parity import TwinRecord
from keras_transformer.export.errors import InvalidBundleError
from keras_transformer.utils.errors import one_line
from keras_transformer.utils.types import Path

FILE = "manifest.json"
PRODUCER = "keras_transformer.export"
SCHEMA = 1
# Distributions of random inputs.
DRAWS = ("normal", "uniform")
SCHEMA_PATH = pathlib.Path(__file__).with_name("manifest.schema.json")
_REQUIRED = {"signatures": dict, "artifacts": dict, "tolerance": float, "versions": dict, "files": dict}
_OPTIONAL = {
    "metadata": dict,
    "tokenizer": dict,
    "generation": dict,
    "states": dict,
    "draws": dict,
    "domain": dict,
    "target": dict,
    "created": str,
}


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The description of a bundle.

    Args:
        signatures: dict of signature name to `SignatureRecord`. The first is the default one.
        artifacts: dict of format name to `ArtifactRecord`.
        tolerance: largest difference from the Keras model that was allowed, as a share of each output's scale.
        versions: dict of distribution to its version: what wrote the bundle.
        files: dict of path to `FileRecord`, of all files of the bundle but the manifest.
        created: when the bundle was written, in UTC; None in those of earlier versions.
        generation: how a language model is run: the fields of `GenerationSpec`, and the names of the cache; or None.
        axis_limits: dict of axis name to the largest size that the model allows.
        metadata: dict of JSON values that describe the model.
        states: dict of signature name to the names of the inputs and outputs in which state goes from call to call.
        draws: dict of signature name to a dict of input name to the distribution of its random numbers, `"normal"` (mean 0,
            deviation 1) or `"uniform"` (from 0 to 1).
        domain: dict of signature name to the `Domain` on which its float files were compared with the model.
        tokenizer: `TokenizerRecord`, or None.
        target: `TargetResult` of an export for an accelerator, as a dict, or None.
        training: signatures and weights of a file that trains on the device, as a dict, or None.
        twin: `TwinRecord`, where the model that was exported is not the one that was handed over, or None.

    Example:

    >>> from keras_transformer.export.data.array_spec import ArraySpec
    >>> x = ArraySpec("x", "float32", (None, 4), ("batch", None))
    >>> artifact = ArtifactRecord({"serve": "model.onnx"}, size=512)
    >>> manifest = Manifest({"serve": SignatureRecord((x,), (x,))}, {"onnx": artifact}, tolerance=1e-5)
    >>> manifest.path("bundle", "onnx", "serve").as_posix(), Manifest.from_dict(manifest.to_dict()) == manifest
    ('bundle/model.onnx', True)
    """

    signatures: Mapping[str, SignatureRecord]
    artifacts: Mapping[str, ArtifactRecord]
    tolerance: float
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    files: Mapping[str, FileRecord] = dataclasses.field(default_factory=dict[str, FileRecord])
    created: str | None = None
    generation: dict[str, Any] | None = None
    axis_limits: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    states: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict[str, tuple[str, ...]])
    draws: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict[str, Mapping[str, str]])
    domain: Mapping[str, Domain] = dataclasses.field(default_factory=dict[str, Domain])
    tokenizer: TokenizerRecord | None = None
    target: dict[str, Any] | None = None
    training: dict[str, Any] | None = None
    twin: TwinRecord | None = None

    def signature(self, name: str) -> SignatureRecord:
        """Inputs and outputs of one signature.

        Raises:
            InvalidBundleError: the bundle has no such signature.
        """
        if name not in self.signatures:
            raise InvalidBundleError(f"no signature '{name}'; the bundle has {', '.join(self.signatures)}")
        return self.signatures[name]

    def artifact(self, format: str) -> ArtifactRecord:
        """The record of one format.

        Raises:
            InvalidBundleError: the bundle was written without that format.
        """
        if format not in self.artifacts:
            raise InvalidBundleError(f"the bundle has no {format} artifact; it has {', '.join(self.artifacts)}")
        return self.artifacts[format]

    def files_of(self, format: str) -> Mapping[str, str]:
        """Dict of signature name to path, of one format; empty where the bundle was written without it."""
        return self.artifacts[format].signatures if format in self.artifacts else {}

    def path(self, directory: Path, format: str, signature: str) -> pathlib.Path:
        """Path of the file (or directory) of one signature in one format.

        Raises:
            InvalidBundleError: the bundle was written without that format, or it lacks the signature.
        """
        files = self.artifact(format).signatures
        if signature not in files:
            raise InvalidBundleError(f"the {format} artifact has no signature '{signature}'; it has {', '.join(files)}")
        return pathlib.Path(directory, files[signature])

    def with_artifact(self, format: str, record: ArtifactRecord) -> Manifest:
        """The manifest with another record of one format."""
        return dataclasses.replace(self, artifacts={**self.artifacts, format: record})

    def to_dict(self) -> dict[str, object]:
        """The manifest as dicts, lists, strings and numbers: the content of `manifest.json`."""
        tokenizer = None if self.tokenizer is None else self.tokenizer.to_dict()
        fields: dict[str, object] = {
            "schema": SCHEMA,
            "producer": PRODUCER,
            "created": self.created,
            "signatures": {name: each.to_dict() for name, each in self.signatures.items()},
            "artifacts": {name: each.to_dict() for name, each in self.artifacts.items()},
            "generation": self.generation,
            "axis_limits": dict(self.axis_limits) or None,
            "tolerance": self.tolerance,
            "versions": dict(self.versions),
            "metadata": self.metadata,
            "states": {name: list(each) for name, each in self.states.items()} or None,
            "draws": {name: dict(each) for name, each in self.draws.items()} or None,
            "domain": {name: each.to_dict() for name, each in self.domain.items()} or None,
            "files": {name: each.to_dict() for name, each in self.files.items()},
            "tokenizer": tokenizer,
            "target": self.target,
            "training": self.training,
            "twin": None if self.twin is None else self.twin.to_dict(),
        }
        return {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def from_dict(cls, record: object, path: Path = FILE) -> Manifest:
        """The manifest that `to_dict` wrote. Fields that are not known are left out.

        Args:
            record: what was parsed from JSON.
            path: path of the file, for the errors.

        Raises:
            InvalidBundleError: it is no manifest, or of another schema; or a field is missing or out of its range.
        """
        if not is_object(record) or record.get("producer") != PRODUCER:
            raise InvalidBundleError(f"'{path}' is not the manifest of a bundle")
        _check_schema(path, record.get("schema"))
        for field, kind in _REQUIRED.items():
            if not isinstance(record.get(field), kind):
                raise InvalidBundleError(f"'{path}' lacks the field '{field}'")
        try:
            return cls._of_fields(record)
        except IncompleteError as error:
            raise InvalidBundleError(f"'{path}' is incomplete: {one_line(error)}") from None

    @classmethod
    def _of_fields(cls, record: dict[str, object]) -> Manifest:
        _check_types(record)
        objects = {field: each for field, each in record.items() if is_object(each)}
        tolerance, created = _tolerance(record["tolerance"]), record.get("created")
        if not objects["signatures"] or not objects["artifacts"]:
            raise IncompleteError("no signatures or no artifacts")
        signatures = {name: SignatureRecord.from_dict(each, name) for name, each in objects["signatures"].items()}
        artifacts = {name: ArtifactRecord.from_dict(each, name) for name, each in objects["artifacts"].items()}
        for name, each in artifacts.items():
            each.check_signatures(name, signatures)
        files = {name: FileRecord.from_dict(each, name) for name, each in objects["files"].items()}
        tokenizer, generation = objects.get("tokenizer"), objects.get("generation")
        manifest = cls(
            signatures=signatures,
            artifacts=artifacts,
            tolerance=tolerance,
            versions=json_object(record["versions"]) or {},
            files=files,
            created=created if isinstance(created, str) else None,
            generation=generation,
            axis_limits={axis: size for axis, size in objects.get("axis_limits", {}).items() if is_count(size)},
            metadata=objects.get("metadata", {}),
            states=_states(objects.get("states", {}), signatures),
            draws=_draws(objects.get("draws", {}), signatures),
            domain={name: Domain.from_dict(each, name) for name, each in objects.get("domain", {}).items()},
            tokenizer=None if tokenizer is None else TokenizerRecord.from_dict(tokenizer),
            target=objects.get("target"),
            training=objects.get("training"),
            twin=TwinRecord.from_dict(record["twin"]) if "twin" in record else None,
        )
        _check_states(generation or {})
        return manifest


def manifest_schema() -> dict[str, Any]:
    """The JSON schema, draft 2020-12, that the manifest of every bundle of this version satisfies.

    Returns:
        dict.

    Example:

    >>> manifest_schema()["properties"]["schema"]["const"]
    1
    """
    return json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))


def _check_schema(path: Path, schema: object) -> None:
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA:
        raise InvalidBundleError(
            f"'{path}' has schema {schema}: a newer version wrote it; this version reads schema {SCHEMA}"
        )
    if schema != SCHEMA or isinstance(schema, (bool, float)):
        raise InvalidBundleError(f"'{path}' has schema {shown(schema)}; this version reads schema {SCHEMA}")


def _check_types(record: Mapping[str, object]) -> None:
    for field, kind in _OPTIONAL.items():
        if field in record and not isinstance(record[field], kind):
            raise IncompleteError(f"'{field}' is not a {kind.__name__}")


def _tolerance(value: object) -> float:
    if not isinstance(value, float) or not math.isfinite(value) or value <= 0:
        raise IncompleteError(f"tolerance {value}")
    return value


def _states(record: Mapping[str, object], signatures: Mapping[str, SignatureRecord]) -> dict[str, tuple[str, ...]]:
    """The names of states by signature, each an input of fixed shape and an output."""
    found: dict[str, tuple[str, ...]] = {}
    for key, names in record.items():
        if key not in signatures or not is_names(names):
            raise IncompleteError(f"'states' of signature '{shown(key)}'")
        inputs, outputs = ({each.name: each for each in side} for side in signatures[key])
        if not all(name in outputs and name in inputs and not any(inputs[name].axes) for name in names):
            raise IncompleteError(f"'states' of signature '{shown(key)}' are no inputs of fixed shape and outputs")
        found[key] = tuple(names)
    return found


def _draws(record: Mapping[str, object], signatures: Mapping[str, SignatureRecord]) -> dict[str, Mapping[str, str]]:
    """The distributions of random inputs by signature."""
    found: dict[str, Mapping[str, str]] = {}
    for key, kinds in record.items():
        names = {each.name for each in signatures[key].inputs} if key in signatures else set[str]()
        if not is_object(kinds) or not all(name in names and kind in DRAWS for name, kind in kinds.items()):
            raise IncompleteError(f"'draws' of signature '{shown(key)}'")
        found[key] = {name: str(kind) for name, kind in kinds.items()}
    return found


def _check_states(record: Mapping[str, object]) -> None:
    for field in ("cache", "memory"):
        if not is_names(record.get(field, [])):
            raise IncompleteError(f"the record of generation has no list of names '{field}'")
