"""Atomic writing: files and folders are written next to their target and moved there when they are complete."""

from __future__ import annotations

import contextlib
import pathlib
import secrets
import shutil
from collections.abc import Iterator

from keras_transformer.utils.types import Path


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
    try:
        work = replacement.begin()
        yield work
        replacement.commit()
    except BaseException:
        replacement.abandon()
        raise


class FolderReplacement:
    """The replacement of a folder, which `abandon` undoes at any point."""

    def __init__(self, target: pathlib.Path) -> None:
        self.target = target
        self.created: list[pathlib.Path] = []
        self.work: pathlib.Path | None = None
        self.backup: pathlib.Path | None = None

    def begin(self) -> pathlib.Path:
        """Creates and returns `work`, the folder to fill."""
        parent = self.target.parent
        self.created = [each for each in (parent, *parent.parents) if not each.exists()]
        parent.mkdir(parents=True, exist_ok=True)
        # Assigned before it is created, so that an interrupt in between does not leak it.
        self.work = self._beside(".partial")
        self.work.mkdir()
        return self.work

    def commit(self) -> None:
        """Moves the folder to the target."""
        if self.work is None:
            raise RuntimeError("begin() was not called")
        if self.target.exists():
            self.backup = self._beside(".old")
            self.target.rename(self.backup)
        self.work.rename(self.target)
        self.work = None
        if self.backup is not None:
            shutil.rmtree(self.backup, ignore_errors=True)

    def abandon(self) -> None:
        """Restores the original state."""
        if self.backup is not None and self.backup.exists() and not self.target.exists():
            self.backup.rename(self.target)
        for leftover in (self.work, self.backup):
            if leftover is not None:
                shutil.rmtree(leftover, ignore_errors=True)
        for parent in self.created:
            with contextlib.suppress(OSError):
                parent.rmdir()

    def _beside(self, suffix: str) -> pathlib.Path:
        return self.target.parent / f".{self.target.name}.{secrets.token_hex(4)}{suffix}"
