"""Validation of manifests: a damaged or hostile one ends in `InvalidBundleError`."""

import math
import pathlib
import re
import stat
from typing import Any, TypeGuard

from keras_transformer.export.bundle.metadata import PRODUCER
from keras_transformer.export.errors import InvalidBundleError, one_line

SCHEMA = 1
_REQUIRED = {
    "signatures": dict,
    "artifacts": dict,
    "tolerance": float,
    "versions": dict,
    "files": dict,
}
_OPTIONAL = {"metadata": dict, "tokenizer": dict, "generation": dict, "target": dict, "created": str}
_DTYPES = {
    *("bool", "string", "float16", "float32", "float64", "complex64", "complex128"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGEST = 2**40
_NO_WEIGHTS: dict[str, Any] = {"equal": 0, "computed": [], "unaccounted": []}


def check_fields(path: pathlib.Path, manifest: Any) -> None:
    """Checks that every required field is present, of its type and within its range.

    Args:
        path: path of the manifest, for the errors.
        manifest: the parsed JSON.

    Raises:
        InvalidBundleError: names the field.
    """
    if not isinstance(manifest, dict) or manifest.get("producer") != PRODUCER:
        raise InvalidBundleError(f"'{path}' is not the manifest of a bundle")
    _check_schema(path, manifest.get("schema"))
    for field, kind in _REQUIRED.items():
        if not isinstance(manifest.get(field), kind):
            raise InvalidBundleError(f"'{path}' lacks the field '{field}'")
    try:
        _check_types(manifest)
        for name, record in manifest["signatures"].items():
            _check_signature(name, record)
        for name, record in manifest["artifacts"].items():
            _check_artifact(name, record, manifest["signatures"])
        for name, record in manifest["files"].items():
            _check_file_record(name, record)
        _check_tokenizer(manifest.get("tokenizer"))
        _check_states(manifest.get("generation", {}))
    except _Incomplete as error:
        raise InvalidBundleError(f"'{path}' is incomplete: {one_line(error)}") from None


def check_files(directory: pathlib.Path, manifest: dict[str, Any]) -> None:
    """Checks that every listed file is inside the bundle and has its size, and that every path of an artifact is listed.

    Raises:
        InvalidBundleError: names the file.
    """
    root = directory.resolve()
    for name, record in manifest["files"].items():
        _check_file(directory, root, name, record)
    used = [path for artifact in manifest["artifacts"].values() for path in artifact["signatures"].values()]
    if "tokenizer" in manifest:
        used.append(manifest["tokenizer"]["path"])
    listed = {name[:end] for name in manifest["files"] for end in _ends(name)}
    for name in used:
        if name not in listed:
            raise InvalidBundleError(f"'{_shown(name)}' is not among the files of the manifest")
    _check_plain(directory, root)


def _ends(name: str) -> list[int]:
    """Where the path of a file, and the paths of the folders in which it is, end."""
    return [*(at for at, letter in enumerate(name) if letter == "/"), len(name)]


class _Incomplete(Exception):
    """A field is missing or wrong."""


def _check_schema(path: pathlib.Path, schema: Any) -> None:
    if isinstance(schema, int) and not isinstance(schema, bool) and schema > SCHEMA:
        raise InvalidBundleError(
            f"'{path}' has schema {schema}: a newer version wrote it; this version reads schema {SCHEMA}"
        )
    if schema != SCHEMA or isinstance(schema, (bool, float)):
        raise InvalidBundleError(f"'{path}' has schema {_shown(schema)}; this version reads schema {SCHEMA}")


def _check_types(manifest: dict[str, Any]) -> None:
    for field, kind in _OPTIONAL.items():
        if not isinstance(manifest.get(field, kind()), kind):
            raise _Incomplete(f"'{field}' is not a {kind.__name__}")
    if not math.isfinite(manifest["tolerance"]) or manifest["tolerance"] <= 0:
        raise _Incomplete(f"tolerance {manifest['tolerance']}")
    if not manifest["signatures"] or not manifest["artifacts"]:
        raise _Incomplete("no signatures or no artifacts")


def _check_signature(name: str, record: Any) -> None:
    for side in ("inputs", "outputs"):
        specs = record.get(side) if isinstance(record, dict) else None
        if not isinstance(specs, list):
            raise _Incomplete(f"signature '{_shown(name)}' has no list of {side}")
        names = [_check_spec(name, spec) for spec in specs]
        if len(set(names)) < len(names):
            raise _Incomplete(f"signature '{_shown(name)}' names one of its {side} twice")
    if not record["outputs"]:
        raise _Incomplete(f"signature '{_shown(name)}' has no outputs")


def _check_spec(signature: str, spec: Any) -> str:
    """Checks one input or output; returns its name."""
    where = f"signature '{_shown(signature)}'"
    if not isinstance(spec, dict) or not isinstance(spec.get("name"), str) or not spec["name"]:
        raise _Incomplete(f"{where} has an input or output without a name")
    where += f", '{_shown(spec['name'])}'"
    shape, axes = spec.get("shape"), spec.get("axes")
    if not isinstance(spec.get("dtype"), str) or spec["dtype"] not in _DTYPES:
        raise _Incomplete(f"{where}: dtype {_shown(spec.get('dtype'))}")
    if not isinstance(shape, list) or not isinstance(axes, list) or len(shape) != len(axes) or len(shape) > 32:
        raise _Incomplete(f"{where}: shape {_shown(shape)} with axes {_shown(axes)}")
    for size, axis in zip(shape, axes, strict=True):
        fixed, dynamic = axis is None and _is_count(size), size is None and isinstance(axis, str) and axis
        if not fixed and not dynamic:
            raise _Incomplete(f"{where}: size {_shown(size)} along axis {_shown(axis)}")
    return spec["name"]


def _check_artifact(name: str, record: Any, signatures: dict[str, Any]) -> None:
    files = record.get("signatures") if isinstance(record, dict) else None
    if not isinstance(files, dict) or not files or not _is_count(record.get("bytes")):
        raise _Incomplete(f"artifact '{_shown(name)}' lacks its signatures or its size")
    for signature, path in files.items():
        if not isinstance(path, str) or signature not in signatures:
            raise _Incomplete(f"artifact '{_shown(name)}': signature '{_shown(signature)}'")
    tolerance = record.get("tolerance", 1.0)
    float_bytes = record.get("float_bytes")
    if not _is_number(tolerance) or not 0 < tolerance < math.inf or not (float_bytes is None or _is_count(float_bytes)):
        raise _Incomplete(f"artifact '{_shown(name)}': tolerance {_shown(tolerance)} or float_bytes")
    parity = record.get("parity", [])
    if not isinstance(parity, list) or not all(map(_is_parity, parity)):
        raise _Incomplete(f"artifact '{_shown(name)}': parity")
    _check_names(name, record, signatures)
    if not _is_weights_record(record.get("weights", _NO_WEIGHTS)):
        raise _Incomplete(f"artifact '{_shown(name)}': weights")


def _check_names(artifact: str, record: dict[str, Any], signatures: dict[str, Any]) -> None:
    """Checks the names in the files: of every input and output of a signature, each once."""
    names = record.get("names", {})
    if not isinstance(names, dict):
        raise _Incomplete(f"artifact '{_shown(artifact)}': names")
    for signature, sides in names.items():
        where = f"artifact '{_shown(artifact)}': names of signature '{_shown(signature)}'"
        if signature not in record["signatures"] or not isinstance(sides, dict):
            raise _Incomplete(where)
        for side in ("inputs", "outputs"):
            found = sides.get(side)
            known = {each["name"] for each in signatures[signature][side]}
            if not isinstance(found, dict) or set(found) != known:
                raise _Incomplete(f"{where}, {side}")
            if not all(isinstance(each, str) and each for each in found.values()) or len({*found.values()}) < len(
                found
            ):
                raise _Incomplete(f"{where}, {side}")


def _is_parity(record: Any) -> bool:
    figures = ("difference", "scale", "ratio", "share")
    return isinstance(record, dict) and all(_is_number(record.get(each, 0.0)) for each in figures) and "ratio" in record


def _is_weights_record(record: Any) -> bool:
    """Whether a record is what the comparison of weights returns: counts, and lists of names."""
    if not isinstance(record, dict) or record.keys() - {"rounded"} != _NO_WEIGHTS.keys():
        return False
    if not _is_count(record["equal"]) or not _is_count(record.get("rounded", 0)):
        return False
    names = [record["computed"], record["unaccounted"]]
    return all(isinstance(each, list) and all(isinstance(name, str) for name in each) for each in names)


def _check_file_record(name: str, record: Any) -> None:
    if not isinstance(record, dict) or not _is_count(record.get("bytes")):
        raise _Incomplete(f"the record of file '{_shown(name)}' has no size")
    if not isinstance(record.get("sha256"), str) or not _SHA256.fullmatch(record["sha256"]):
        raise _Incomplete(f"the record of file '{_shown(name)}' has no sha256")


def _check_tokenizer(record: Any) -> None:
    if record is None:
        return
    for field, kind in (("path", str), ("fingerprint", str), ("options", dict)):
        if not isinstance(record.get(field), kind):
            raise _Incomplete(f"the record of the tokenizer lacks '{field}'")


def _check_states(record: dict[str, Any]) -> None:
    for field in ("cache", "memory"):
        names = record.get(field, [])
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise _Incomplete(f"the record of generation has no list of names '{field}'")


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_file(directory: pathlib.Path, root: pathlib.Path, name: str, record: dict[str, Any]) -> None:
    shown = _shown(name)
    parts = pathlib.PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0] or "\0" in name:
        raise InvalidBundleError(f"'{shown}' is outside the bundle")
    try:
        path = (directory / name).resolve()
        if not path.is_relative_to(root):
            raise InvalidBundleError(f"'{shown}' is outside the bundle")
        if not path.is_file():
            raise InvalidBundleError(f"'{shown}' is missing from the bundle")
        size = path.stat().st_size
    except (OSError, ValueError, RuntimeError) as error:  # An impossible file name; a cycle of links.
        raise InvalidBundleError(f"'{shown}' cannot be read: {one_line(error)}") from None
    if size != record["bytes"]:
        raise InvalidBundleError(f"'{shown}' does not have the size in the manifest")


def _check_plain(directory: pathlib.Path, root: pathlib.Path) -> None:
    """Raises for pipes, devices and links out of the bundle: a runtime opens every path in an artifact."""
    for path in directory.rglob("*"):
        if path.is_symlink() and not _leads_to(path, root):
            raise InvalidBundleError(f"'{_shown(path.name)}' is a link that leads out of the bundle")
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise InvalidBundleError(f"'{_shown(path.name)}' cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise InvalidBundleError(f"'{_shown(path.name)}' is neither a file nor a directory")


def _leads_to(path: pathlib.Path, root: pathlib.Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def _shown(value: Any, limit: int = 80) -> str:
    """A value of a manifest as one short printable line, for an error."""
    text = ascii(value)[1:-1] if isinstance(value, str) and not value.isprintable() else str(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
