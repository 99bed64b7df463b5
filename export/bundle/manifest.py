"""`manifest.json`, the description of a bundle. Read and written without TensorFlow or Keras."""

import hashlib
import json
import pathlib
from collections.abc import Iterable
from typing import Any

from keras_transformer.export.bundle.manifest_checks import check_fields, check_files
from keras_transformer.export.errors import InvalidBundleError, nearest_path, one_line
from keras_transformer.export.spec.export_spec import ArraySpec
from keras_transformer.utils.types import Path

FILE = "manifest.json"
PROBES = "probes.npz"
_MAX_BYTES = 2**26


def read_manifest(directory: Path) -> dict[str, Any]:
    """Reads and checks the manifest of a bundle.

    Args:
        directory: path of the bundle.

    Returns:
        The manifest as a dict.

    Raises:
        InvalidBundleError: there is no bundle; the manifest cannot be read, is incomplete or was written by a newer
            version; or a listed file is missing, of another size or outside the bundle.
    """
    directory = pathlib.Path(directory)
    path = directory / FILE
    if not directory.exists():
        raise InvalidBundleError(f"no such bundle: '{directory}'{nearest_path(directory)}")
    manifest = _read_json(directory, path)
    check_fields(path, manifest)
    check_files(directory, manifest)
    return manifest


def _read_json(directory: pathlib.Path, path: pathlib.Path) -> Any:
    try:
        if not path.is_file():
            raise InvalidBundleError(f"'{directory}' is not a bundle: it contains no {FILE}")
        if path.stat().st_size > _MAX_BYTES:
            raise InvalidBundleError(f"'{path}' cannot be read: it is larger than any manifest")
        text = path.read_text(encoding="utf-8")
        return json.loads(text, object_pairs_hook=_without_repetition, parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidBundleError(f"'{path}' cannot be read: {one_line(error)}") from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it contains '{name[:80]}' twice")
        found[name] = value
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def signature_specs(manifest: dict[str, Any], name: str) -> tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]]:
    """Input and output specs of one signature.

    Raises:
        InvalidBundleError: the bundle has no such signature.
    """
    if name not in manifest["signatures"]:
        raise InvalidBundleError(f"no signature '{name}'; the bundle has {', '.join(manifest['signatures'])}")
    record = manifest["signatures"][name]
    return _array_specs(record["inputs"]), _array_specs(record["outputs"])


def _array_specs(records: list[dict[str, Any]]) -> tuple[ArraySpec, ...]:
    return tuple(ArraySpec.from_dict(each) for each in records)


def file_records(directory: Path) -> dict[str, dict[str, Any]]:
    """Dict of relative path to size and sha256, of all files in a directory and its subdirectories."""
    directory = pathlib.Path(directory)
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): _record(path) for path in paths}


def check_hashes(directory: Path, manifest: dict[str, Any], names: Iterable[str] | None = None) -> None:
    """Compares files with their hashes in the manifest.

    Args:
        directory: path of the bundle.
        manifest: its manifest.
        names: names of the files; all of them when None.

    Raises:
        InvalidBundleError: names the first file that differs.
    """
    for name in manifest["files"] if names is None else names:
        try:
            found = _record(pathlib.Path(directory, name))["sha256"]
        except OSError as error:
            raise InvalidBundleError(f"'{name}' cannot be read: {error.strerror}") from error
        if found != manifest["files"][name]["sha256"]:
            raise InvalidBundleError(f"'{name}' was altered: its sha256 is not the manifest's")


def artifact_path(directory: Path, manifest: dict[str, Any], format: str, signature: str) -> pathlib.Path:
    """Path of the file (or directory) of one signature in one format.

    Raises:
        InvalidBundleError: the bundle was written without that format.
    """
    if format not in manifest["artifacts"]:
        raise InvalidBundleError(f"the bundle has no {format} artifact; it has {', '.join(manifest['artifacts'])}")
    files = manifest["artifacts"][format]["signatures"]
    if signature not in files:
        raise InvalidBundleError(f"the {format} artifact has no signature '{signature}'; it has {', '.join(files)}")
    return pathlib.Path(directory, files[signature])


def _record(path: pathlib.Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}
