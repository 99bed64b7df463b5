"""Database folders: atomic writes, and a manifest with the size and hash of each file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
from collections.abc import Iterator

from keras_transformer.retrieval.errors import InvalidDatabaseError
from keras_transformer.utils.atomic_write import replacing_folder
from keras_transformer.utils.types import JsonObject, Path

MANIFEST = "database.json"
_BLOCK_BYTES = 2**20


@contextlib.contextmanager
def writing(directory: Path) -> Iterator[pathlib.Path]:
    """Context manager of a temporary folder, which replaces `directory` on success and is deleted on failure.

    Yields:
        `pathlib.Path` of the temporary folder.

    Raises:
        InvalidDatabaseError: `directory` exists and is not a database.
    """
    target = pathlib.Path(directory).resolve()
    if target.exists() and not (target / MANIFEST).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidDatabaseError(f"'{target}' is not a database: not replaced.")
    with replacing_folder(target) as work:
        yield work


def write_manifest(directory: pathlib.Path, config: JsonObject) -> None:
    """Writes the manifest of a folder: the config, and the size and SHA-256 of each file."""
    files = {path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(directory.iterdir())}
    (directory / MANIFEST).write_text(json.dumps({**config, "files": files}, indent=2) + "\n", encoding="utf-8")


def read_manifest(directory: Path, verify: bool = True) -> JsonObject:
    """Reads the config of a folder and verifies its files.

    Args:
        directory: str or path.
        verify: bool. Whether to verify the hashes, which reads all files. Sizes are always verified.

    Raises:
        InvalidDatabaseError: the manifest is missing or invalid, or a file is missing or was modified.
    """
    directory = pathlib.Path(directory)
    path = directory / MANIFEST
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        files = {name: (record["bytes"], record["sha256"]) for name, record in config.pop("files").items()}
    except OSError as error:
        raise InvalidDatabaseError(f"'{directory}' contains no database: {error.strerror}: '{path}'.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidDatabaseError(f"'{path}' is not the manifest of a database: {error!r}.") from None
    for name, (size, digest) in files.items():
        file = directory / name
        if pathlib.PurePath(name).name != name or not file.is_file():
            raise InvalidDatabaseError(f"'{directory}' has no file '{name}'.")
        if file.stat().st_size != size:
            raise InvalidDatabaseError(f"'{file}' has {file.stat().st_size} bytes. Expected: {size}")
        if verify and _sha256(file) != digest:
            raise InvalidDatabaseError(f"'{file}' was modified after it was written: the hash does not match.")
    return config


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
