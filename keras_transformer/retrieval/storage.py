"""Folders of large files: written to a temporary folder, moved when complete, and checked when read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
from typing import Any

from keras_transformer.retrieval.errors import InvalidDatabaseError
from keras_transformer.utils.atomic_write import replacing_folder
from keras_transformer.utils.types import Path

MANIFEST = "database.json"
_BLOCK_BYTES = 2**20


@contextlib.contextmanager
def writing(directory: Any):
    """A folder to write to, which replaces `directory` if the block succeeds, and is removed if it fails.

    Yields:
        path of the folder.

    Raises:
        InvalidDatabaseError: `directory` exists and is not a database.
    """
    target = pathlib.Path(directory).resolve()
    if target.exists() and not (target / MANIFEST).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidDatabaseError(f"'{target}' is no database: not replaced.")
    with replacing_folder(target) as work:
        yield work


def seal(directory: Any, config: dict[str, Any]) -> None:
    """Writes the manifest of a folder: its config, and the size and SHA-256 of each file."""
    files = {path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(directory.iterdir())}
    (directory / MANIFEST).write_text(json.dumps({**config, "files": files}, indent=2) + "\n", encoding="utf-8")


def unseal(directory: Any, verify: bool = True):
    """The config of a folder whose files are those that were sealed.

    Args:
        directory: str or path.
        verify: bool. Whether to read all files for their hashes; their sizes are compared in any case.

    Raises:
        InvalidDatabaseError: there is no manifest, or a file is missing or not what it was.
    """
    directory = pathlib.Path(directory)
    path = directory / MANIFEST
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        files = {name: (record["bytes"], record["sha256"]) for name, record in config.pop("files").items()}
    except OSError as error:
        raise InvalidDatabaseError(f"'{directory}' contains no database: {error.strerror}: '{path}'.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidDatabaseError(f"'{path}' is no manifest of a database: {error!r}.") from None
    for name, (size, digest) in files.items():
        file = directory / name
        if pathlib.PurePath(name).name != name or not file.is_file():
            raise InvalidDatabaseError(f"'{directory}' lacks '{name}'.")
        if file.stat().st_size != size:
            raise InvalidDatabaseError(f"'{file}' has {file.stat().st_size} bytes; {size} were written.")
        if verify and _sha256(file) != digest:
            raise InvalidDatabaseError(f"'{file}' was altered after it was written: its hash does not match.")
    return config


def _sha256(path: Path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
