"""Tokenizers as folders: written in one step, and checked when they are read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
from typing import Any

from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.utils.atomic_write import replacing_folder
from keras_transformer.utils.types import Path

CONFIG = "tokenizer_config.json"


def fingerprint(config: dict[str, Any], files: dict[str, bytes]) -> str:
    """SHA-256, in hex, of a config and of the files beside it."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode("utf-8"))
    for name in sorted(files):
        digest.update(f"\n{name} {len(files[name])}\n".encode())
        digest.update(files[name])
    return digest.hexdigest()


def save(directory: Path, config: dict[str, Any], files: dict[str, bytes]) -> None:
    """Writes the folder beside its place, then moves it there.

    Args:
        directory: str or path.
        config: dict that JSON can hold.
        files: dict of name to bytes.

    Raises:
        InvalidTokenizerError: at `directory` lies something that is no tokenizer.
    """
    target = pathlib.Path(directory).resolve()
    _check_target(target)
    content = {**config, "fingerprint": fingerprint(config, files), "files": sorted(files)}
    with replacing_folder(target) as work:
        for name, data in files.items():
            (work / name).write_bytes(data)
        (work / CONFIG).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _check_target(target: Any) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise InvalidTokenizerError(f"'{target}' is a file; a tokenizer is a folder.")
    present = {path.name for path in target.iterdir()}
    own = {CONFIG}
    with contextlib.suppress(InvalidTokenizerError):
        own |= set(read_config(target)["files"])
    foreign = sorted(present - own)
    if foreign:
        raise InvalidTokenizerError(f"'{target}' holds '{foreign[0]}', which is no part of a tokenizer: not replaced.")


def read_config(directory: Path) -> dict[str, Any]:
    """The config of a folder.

    Raises:
        InvalidTokenizerError: there is none that can be read.
    """
    path = os.path.join(os.fspath(directory), CONFIG)
    try:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        for key, kind in (("kind", str), ("special_tokens", dict), ("options", dict), ("files", list)):
            if not isinstance(config[key], kind):
                raise ValueError(f"{key!r} is not a {kind.__name__}")
        if not all(isinstance(name, str) and os.path.basename(name) == name for name in config["files"]):
            raise ValueError("'files' names files outside the folder")
    except OSError as error:
        raise InvalidTokenizerError(f"'{directory}' holds no tokenizer: {error.strerror}: '{path}'.") from None
    except KeyError as error:
        raise InvalidTokenizerError(f"'{path}' is no tokenizer's config: it lacks {error}.") from None
    except (ValueError, TypeError) as error:
        raise InvalidTokenizerError(f"'{path}' is no tokenizer's config: {error}.") from None
    return config


def read(directory: Path):
    """Config and files of a folder, proven to be what was saved.

    Raises:
        InvalidTokenizerError: a file is missing, or was altered.
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
        raise InvalidTokenizerError(f"'{directory}' was altered after it was saved: its fingerprint does not match.")
    return core, files
