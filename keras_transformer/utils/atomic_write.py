"""Atomic writing: files and folders are written next to their target and moved there when they are complete."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Iterator

from keras_transformer.utils.errors import on_failure
from keras_transformer.utils.folder_locks import FolderLock, exchange
from keras_transformer.utils.types import Path

# Suffixes of the folder that is being filled, and of the one that it replaces.
_NEW, _OLD = ".partial", ".old"


@contextlib.contextmanager
def replacing_file(path: Path) -> Iterator[pathlib.Path]:
    """Context that writes a temporary file, which replaces `path` if the block completes and is removed otherwise.

    Args:
        path: str or path.

    Yields:
        The path to write to, with the suffix of `path`.
    """
    path = pathlib.Path(path)
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """Context with an empty temporary folder, which replaces `target` if the block completes.

    If the block raises, or is interrupted, the new folder is removed and the old one is kept.

    Args:
        target: absolute path.

    Yields:
        Path of the folder to fill.
    """
    replacement = FolderReplacement(target)
    with on_failure(replacement.abandon):
        work = replacement.begin()
        yield work
        replacement.commit()


class FolderReplacement:
    """The replacement of a folder, which `abandon` undoes at any point.

    The new folder takes the place of the old one in one step where the file system supports that. What a process left that
    was killed is removed by the next replacement of the same folder; an old folder that it had moved away comes back.
    """

    def __init__(self, target: pathlib.Path) -> None:
        self.target = target
        self.created: list[pathlib.Path] = []
        self.work: pathlib.Path | None = None
        self.backup: pathlib.Path | None = None
        self._lock: FolderLock | None = None

    def begin(self) -> pathlib.Path:
        """Creates and returns `work`, the folder to fill."""
        parent = self.target.parent
        self.created = [each for each in (parent, *parent.parents) if not each.exists()]
        parent.mkdir(parents=True, exist_ok=True)
        sweep(self.target)
        while True:
            # Assigned before it is created, so that an interrupt in between does not leak it.
            self.work = _beside(self.target, secrets.token_hex(4), _NEW)
            self.work.mkdir()
            self._lock = FolderLock(self.work)
            if self.work.exists() and not self._lock.is_taken:
                return self.work
            self._lock.release()  # Another process swept it before it was locked.

    def commit(self) -> None:
        """Moves the folder to the target."""
        if self.work is None:
            raise RuntimeError("begin() was not called")
        if not self.target.exists():
            self.work.rename(self.target)
        elif exchange(self.work, self.target):
            self.backup = self.work
        else:
            self.backup = self.work.with_suffix(_OLD)
            self.target.rename(self.backup)
            self.work.rename(self.target)
        self.work = None
        if self.backup is not None:
            shutil.rmtree(self.backup, ignore_errors=True)
        self._unlock()

    def abandon(self) -> None:
        """Restores the original state."""
        if self.backup is not None and self.backup.exists() and not self.target.exists():
            self.backup.rename(self.target)
        for leftover in (self.work, self.backup):
            if leftover is not None:
                shutil.rmtree(leftover, ignore_errors=True)
        self._unlock()
        for parent in self.created:
            with contextlib.suppress(OSError):
                parent.rmdir()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()


def sweep(target: pathlib.Path) -> None:
    """Removes what dead processes left beside a folder that they were replacing, and restores the folder if it is missing.

    Args:
        target: absolute path of the folder.
    """
    pattern = re.compile(rf"\.{re.escape(target.name)}\.([0-9a-f]{{8}})({re.escape(_NEW)}|{re.escape(_OLD)})")
    found = [match for match in map(pattern.fullmatch, os.listdir(target.parent)) if match]
    for token in dict.fromkeys(match[1] for match in found):
        new, old = _beside(target, token, _NEW), _beside(target, token, _OLD)
        lock = FolderLock(new if new.exists() else old)
        if not lock.is_held:
            continue
        if old.is_dir() and not target.exists():
            old.rename(target)
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        lock.release()


def _beside(target: pathlib.Path, token: str, suffix: str) -> pathlib.Path:
    return target.parent / f".{target.name}.{token}{suffix}"
