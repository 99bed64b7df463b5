"""Saving and loading of tokenizer folders: atomic writes, and a fingerprint that is verified on loading."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.utils.atomic_write import replacing_folder
from keras_transformer.utils.json_files import read_json
from keras_transformer.utils.types import Config, JsonObject, Path

CONFIG = "tokenizer_config.json"


def fingerprint(config: Config, files: dict[str, bytes]) -> str:
    """Hex SHA-256 of a config and the content of the files."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode("utf-8"))
    for name in sorted(files):
        digest.update(f"\n{name} {len(files[name])}\n".encode())
        digest.update(files[name])
    return digest.hexdigest()


def save(directory: Path, config: Config, files: dict[str, bytes]) -> None:
    """Writes a temporary folder, then moves it to `directory`.

    Args:
        directory: str or path.
        config: dict that is serializable as JSON.
        files: dict of name to bytes.

    Raises:
        InvalidTokenizerError: `directory` exists and is not a tokenizer.
    """
    target = pathlib.Path(directory).resolve()
    _check_target(target)
    content = {**config, "fingerprint": fingerprint(config, files), "files": sorted(files)}
    with replacing_folder(target) as work:
        for name, data in files.items():
            (work / name).write_bytes(data)
        (work / CONFIG).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _check_target(target: pathlib.Path) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise InvalidTokenizerError(f"'{target}' is a file, not a tokenizer folder.")
    present = {path.name for path in target.iterdir()}
    own = {CONFIG}
    with contextlib.suppress(InvalidTokenizerError):
        own |= set(read_config(target)["files"])
    foreign = sorted(present - own)
    if foreign:
        raise InvalidTokenizerError(
            f"'{target}' contains '{foreign[0]}', which is not part of a tokenizer: not replaced."
        )


def read_config(directory: Path) -> JsonObject:
    """Reads and validates the config of a folder.

    Raises:
        InvalidTokenizerError: the config is missing or invalid.
    """
    path = os.path.join(os.fspath(directory), CONFIG)
    if not os.path.isfile(path):
        raise InvalidTokenizerError(f"'{directory}' contains no tokenizer: No such file: '{path}'.")
    try:
        config = read_json(path, InvalidTokenizerError)
    except InvalidTokenizerError as error:
        raise InvalidTokenizerError(f"{error} It is not a tokenizer config.") from None
    try:
        for key, kind in (("kind", str), ("special_tokens", dict), ("options", dict), ("files", list)):
            if not isinstance(config[key], kind):
                raise ValueError(f"{key!r} is not a {kind.__name__}")
        if not all(isinstance(name, str) and os.path.basename(name) == name for name in config["files"]):
            raise ValueError("'files' names files outside of the folder")
    except KeyError as error:
        raise InvalidTokenizerError(f"'{path}' is not a tokenizer config: missing key {error}.") from None
    except (ValueError, TypeError) as error:
        raise InvalidTokenizerError(f"'{path}' is not a tokenizer config: {error}.") from None
    return config


def read(directory: Path) -> tuple[JsonObject, dict[str, bytes]]:
    """Reads the config and the files of a folder, and verifies the fingerprint.

    Raises:
        InvalidTokenizerError: a file is missing or was modified.
    """
    config = read_config(directory)
    files = {}
    for name in config["files"]:
        path = os.path.join(os.fspath(directory), name)
        try:
            with open(path, "rb") as file:
                files[name] = file.read()
        except OSError as error:
            raise InvalidTokenizerError(f"'{path}' cannot be read: {error.strerror}.") from None
    core = {key: config[key] for key in ("kind", "special_tokens", "options")}
    if fingerprint(core, files) != config.get("fingerprint"):
        raise InvalidTokenizerError(f"'{directory}' was modified after it was saved: the fingerprint does not match.")
    return core, files
