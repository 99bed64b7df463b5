"""Files beside a bundle from which LiteRT opens a large TFLite file fast and in little memory.

XNNPACK brings weights into the order in which its kernels read them. What it has packed is written to a file once and mapped
from then on: all signatures and processes share it. A copy of the TFLite file has the operators of the signatures of fixed
shapes alone: LiteRT prepares those of all others, which takes more memory and time than a decoder of a few hundred megabytes
has otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import pathlib
import platform
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

from keras_transformer.export.runtime.libraries import LITERT
from keras_transformer.export.runtime.weight_folder import WeightFolder
from keras_transformer.export.tflite.flatbuffer.signatures import fixed_signatures, write_part

# What LiteRT takes for a path: packed weights in memory, still shared by all signatures, or for each signature by itself.
IN_MEMORY, NONE = ":memory", ""
_PART, _PARTIAL = ".tflite", ".partial"
# Of the content of files.
_VERSION = "1"
_DIGITS = 32
# Files that another process began and left. None takes as long to write.
_ABANDONED_SECONDS = 3600.0
# Packed weights of 4 bits take up to five times the file; XNNPACK ends the process where the disk is full.
_SPACE = 8
_PROCESSOR = ("flags", "Features", "vendor_id", "cpu family", "model", "CPU implementer", "CPU part", "CPU variant")

_Model = TypeVar("_Model")


class WeightCache:
    """The packed weights of one TFLite file.

    In a folder, the name of a file has a hash of what it depends on (the TFLite file, the release of LiteRT, the processor)
    and one of its content: what was made from another file is not found, and what was damaged is not used. Files are written
    under another name and renamed when they are complete, so that neither a crash nor a second process leaves a part of one.
    Where the folder cannot be written, weights are packed in memory.

    Args:
        model: path of the TFLite file.
        sha256: its hash, or another text that differs where its content does.
        folder: `WeightFolder`, or None for memory.
    """

    def __init__(self, model: pathlib.Path, sha256: str = "", folder: WeightFolder | None = None) -> None:
        status = model.stat()
        self._model, self._bytes = model, status.st_size
        is_large = folder is not None and self._bytes >= folder.least_bytes
        self._folder = folder if is_large else None
        if folder is not None and not folder.is_checked:  # The hash may be that of what the file was.
            sha256 = f"{model.resolve()} {status.st_mtime_ns}"
        parts = (_VERSION, sha256, str(self._bytes), LITERT.version or "", platform.machine(), processor())
        self._identity = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]
        self._digest = functools.cache(_digest)

    @property
    def was_opened(self) -> bool:
        """Whether this very TFLite file was opened before, after it had been checked: then its part is in the folder."""
        folder = self._folder
        return folder is not None and folder.is_checked and self._found(folder, _PART) is not None

    def open(self, make: Callable[[pathlib.Path, str], _Model]) -> _Model:
        """What a function makes from the paths of a TFLite file and of packed weights, which it writes where there are none.

        Args:
            make: opens a file with that path for packed weights, or with `IN_MEMORY` or `NONE`.
        """
        if self._folder is not None:
            with contextlib.suppress(OSError):  # A folder that cannot be written, or a full disk.
                names = fixed_signatures(self._model)
                part = self._kept(self._folder, _PART, functools.partial(write_part, self._model, names))
                weights = self._kept(self._folder, ".xnnpack", lambda path: make(part, str(path)))
                return make(part, str(weights))
        return make(self._model, _in_memory())

    def _kept(self, folder: WeightFolder, suffix: str, write: Callable[[pathlib.Path], object]) -> pathlib.Path:
        """The path of a file of the folder, which is written if there is none whose content has the hash in its name.

        Raises:
            OSError: it cannot be written.
        """
        found = self._found(folder, suffix)
        if found is not None:
            return found
        if _longest_file() < _SPACE * self._bytes:
            raise OSError(errno.EFBIG, "this process may not write as much")
        folder.path.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder.path).free < _SPACE * self._bytes:
            raise OSError(errno.ENOSPC, "not enough space for packed weights")
        with _partial_file(folder.path) as partial:
            write(partial)
            return partial.replace(folder.path / f"{self._identity}-{_digest(partial)}{suffix}")

    def _found(self, folder: WeightFolder, suffix: str) -> pathlib.Path | None:
        """A file of the folder whose content has the hash in its name, if there is one; others are removed."""
        for path in sorted(folder.path.glob(f"{self._identity}-*{suffix}")):
            if not folder.is_checked or self._digest(path) == path.stem.partition("-")[2]:
                return path
            with contextlib.suppress(OSError):
                path.unlink()
        return None


@contextlib.contextmanager
def _partial_file(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """The path of a new file, which is removed if it is still there at the end; those of ended processes are, too."""
    for path in folder.glob(f"*{_PARTIAL}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()
    path = folder / f"{uuid.uuid4().hex}{_PARTIAL}"
    path.touch(exist_ok=False)  # Raises where XNNPACK would only print that it cannot write.
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _digest(path: pathlib.Path) -> str:
    """The hash of the content of a file; "" for one that cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]
    except OSError:
        return ""


def _in_memory() -> str:
    """How weights are packed without a file. Memory that signatures share is a file for the system, too."""
    return IN_MEMORY if sys.platform == "linux" and _longest_file() == sys.maxsize else NONE


def _longest_file() -> int:
    """The most bytes of a file that this process may write."""
    if os.name != "posix":
        return sys.maxsize
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


@functools.cache
def processor() -> str:
    """What tells processors apart for which weights are packed in different orders; the computer where that is not known."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return f"{platform.processor()} {platform.node()}"
    found = {line for line in lines if line.partition(":")[0].strip() in _PROCESSOR}
    return "\n".join(sorted(found)) or f"{platform.processor()} {platform.node()}"
