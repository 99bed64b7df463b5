"""`manifest.json` and the other files of a bundle on disk. Read and written without TensorFlow or Keras."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import stat
import time
from collections.abc import Iterable, Mapping
from typing import Any

from keras_transformer.export.data.checks import shown
from keras_transformer.export.data.domain import Domain
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.manifest import FILE, Manifest
from keras_transformer.export.data.manifest_records import FileRecord, SignatureRecord
from keras_transformer.export.data.parity import CEILING
from keras_transformer.export.errors import InvalidBundleError
from keras_transformer.utils.choice import nearest_path
from keras_transformer.utils.errors import one_line
from keras_transformer.utils.types import JsonObject, Path

PROBES = "probes.npz"
_MAX_BYTES = 2**26


def read_manifest(directory: Path) -> Manifest:
    """Reads and checks the manifest of a bundle.

    Args:
        directory: path of the bundle.

    Returns:
        The `Manifest`.

    Raises:
        InvalidBundleError: there is no bundle; the manifest cannot be read, is incomplete or was written by a newer
            version; or a listed file is missing, of another size or outside the bundle.
    """
    directory = pathlib.Path(directory)
    path = directory / FILE
    if directory.is_file():
        advice = (
            f": keras-transformer export {directory} --out bundle writes one" if directory.suffix == ".keras" else ""
        )
        raise InvalidBundleError(f"'{directory}' is a file; a bundle is the directory that export writes{advice}")
    if not directory.exists():
        raise InvalidBundleError(f"no such bundle: '{directory}'{nearest_path(directory)}")
    manifest = Manifest.from_dict(_read_json(directory, path), path)
    check_files(directory, manifest)
    return manifest


def new_manifest(spec: ExportSpec, versions: Mapping[str, str]) -> Manifest:
    """The manifest of a bundle without artifacts yet.

    Args:
        spec: the `ExportSpec`, traced.
        versions: dict of distribution to version: what writes the bundle.
    """
    whole = spec.whole().signatures
    return Manifest(
        signatures={name: SignatureRecord(whole[name].inputs, each.outputs) for name, each in spec.signatures.items()},
        artifacts={},
        tolerance=CEILING if spec.tolerance is None else float(spec.tolerance),
        versions=versions,
        created=timestamp(),
        generation=spec.generation or None,
        axis_limits=spec.axis_limits,
        metadata=spec.metadata,
        states={name: each.states for name, each in spec.signatures.items() if each.states},
        draws={name: each.draws for name, each in spec.signatures.items() if each.draws},
    )


def domains_of(spec: ExportSpec) -> dict[str, Domain]:
    """The `Domain` of each signature that is no copy for fixed shapes, without caches and states.

    Args:
        spec: an `ExportSpec` with its probes.
    """
    probes, whole = spec.probes(further=True), spec.whole()
    found: dict[str, Domain] = {}
    for name, each in whole.signatures.items():
        if each.general is None:
            own = spec.signatures[name]
            domain = Domain.of(each.inputs, probes[name], whole.carried(name))
            found[name] = dataclasses.replace(
                domain,
                not_shown=tuple(own.not_shown),
                coverage=own.coverage,
                without_effect=tuple(own.without_effect),
            )
    return found


def timestamp() -> str:
    """The time now, in UTC, as the manifest records it; that of `SOURCE_DATE_EPOCH`, in seconds, if it is set."""
    seconds = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def write_manifest(directory: Path, manifest: Manifest) -> Manifest:
    """Writes `manifest.json`, the last file of a bundle, with the records of all files that are in the bundle.

    Args:
        directory: path of the bundle. A manifest of before is replaced.
        manifest: `Manifest`; its records of files are not used.

    Returns:
        The `Manifest` with the records of the files.
    """
    path = pathlib.Path(directory, FILE)
    path.unlink(missing_ok=True)
    manifest = dataclasses.replace(manifest, files=file_records(directory))
    text = json.dumps(manifest.to_dict(), indent=2, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return manifest


def file_records(directory: Path) -> dict[str, FileRecord]:
    """Dict of relative path to `FileRecord`, of all files in a directory and its subdirectories."""
    directory = pathlib.Path(directory)
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): _record(path) for path in paths}


def check_hashes(directory: Path, manifest: Manifest, names: Iterable[str] | None = None) -> None:
    """Compares files with their hashes in the manifest.

    Args:
        directory: path of the bundle.
        manifest: its manifest.
        names: names of the files; all of them when None.

    Raises:
        InvalidBundleError: names the first file that differs.
    """
    for name in manifest.files if names is None else names:
        try:
            found = _record(pathlib.Path(directory, name)).sha256
        except OSError as error:
            raise InvalidBundleError(f"'{name}' cannot be read: {error.strerror}") from error
        if found != manifest.files[name].sha256:
            raise InvalidBundleError(f"'{name}' was altered: its sha256 is not the manifest's")


def _record(path: pathlib.Path) -> FileRecord:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return FileRecord(path.stat().st_size, digest.hexdigest())


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


def _without_repetition(pairs: list[tuple[str, object]]) -> JsonObject:
    found: JsonObject = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it contains '{name[:80]}' twice")
        found[name] = value
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def check_files(directory: pathlib.Path, manifest: Manifest) -> None:
    """Checks that every listed file is inside the bundle and has its size, and that every path of an artifact is listed.

    Raises:
        InvalidBundleError: names the file.
    """
    root = directory.resolve()
    for name, record in manifest.files.items():
        _check_file(directory, root, name, record)
    used = [path for artifact in manifest.artifacts.values() for path in artifact.signatures.values()]
    used += vocabulary_paths(manifest)
    if manifest.tokenizer is not None:
        used.append(manifest.tokenizer.path)
    listed = {name[:end] for name in manifest.files for end in _ends(name)}
    for name in used:
        if name not in listed:
            raise InvalidBundleError(f"'{shown(name)}' is not among the files of the manifest")
    _check_plain(directory, root)


def vocabulary_paths(manifest: Manifest, format: str | None = None) -> list[str]:
    """Paths of the vocabularies that the preprocessing in front of files reads.

    Args:
        manifest: `Manifest`.
        format: name of the format of the files; all of them when None.
    """
    records = [each for name, each in manifest.artifacts.items() if format in (None, name)]
    return list(dict.fromkeys(path for each in records for one in each.preprocessing.values() for path in one.paths))


def _ends(name: str) -> list[int]:
    """Where the path of a file, and the paths of the folders in which it is, end."""
    return [*(at for at, letter in enumerate(name) if letter == "/"), len(name)]


def _check_file(directory: pathlib.Path, root: pathlib.Path, name: str, record: FileRecord) -> None:
    label = shown(name)
    parts = pathlib.PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0] or "\0" in name:
        raise InvalidBundleError(f"'{label}' is outside the bundle")
    try:
        path = (directory / name).resolve()
        if not path.is_relative_to(root):
            raise InvalidBundleError(f"'{label}' is outside the bundle")
        if not path.is_file():
            raise InvalidBundleError(f"'{label}' is missing from the bundle")
        size = path.stat().st_size
    except (OSError, ValueError, RuntimeError) as error:  # An impossible file name; a cycle of links.
        raise InvalidBundleError(f"'{label}' cannot be read: {one_line(error)}") from None
    if size != record.size:
        raise InvalidBundleError(f"'{label}' does not have the size in the manifest")


def _check_plain(directory: pathlib.Path, root: pathlib.Path) -> None:
    """Raises for pipes, devices and links out of the bundle: a runtime opens every path in an artifact."""
    for path in directory.rglob("*"):
        if path.is_symlink() and not _leads_to(path, root):
            raise InvalidBundleError(f"'{shown(path.name)}' is a link that leads out of the bundle")
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise InvalidBundleError(f"'{shown(path.name)}' cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise InvalidBundleError(f"'{shown(path.name)}' is neither a file nor a directory")


def _leads_to(path: pathlib.Path, root: pathlib.Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False
