"""A lock that one process holds on a directory, and that ends with the process."""

from __future__ import annotations

import errno
import os
import pathlib
import threading
import warnings
import weakref
from typing import NamedTuple

from keras_transformer.training.errors import TrainingCheckpointError
from keras_transformer.utils.errors import on_failure
from keras_transformer.utils.types import Path

try:
    import fcntl
except ImportError:  # Windows.
    fcntl = None  # type: ignore[assignment]

_FILE = "checkpoint.lock"


class _Holder(NamedTuple):
    descriptor: int
    thread: threading.Thread


# By process as well: a forked child inherits this dict, and none of its locks.
_holders: dict[tuple[int, str], _Holder] = {}
# Reentrant: the garbage collector may release a lock while another one is acquired.
_guard = threading.RLock()


class DirectoryLock:
    """Lock of the training that saves to a directory.

    It is a POSIX record lock on a file: the system releases it when the process ends, however that happens, and a forked
    child, such as a worker that loads data, does not keep it. Within a process, a training that starts in the thread of an
    earlier one takes its lock over: the earlier one has ended, if only by an exception. A lock is released when its object
    is deleted.

    Args:
        directory: str or path, created when the lock is acquired.

    Example:

    >>> lock = DirectoryLock("locked")
    >>> lock.acquire()
    >>> lock.release()
    """

    def __init__(self, directory: Path) -> None:
        self.directory = pathlib.Path(directory)
        self._release: weakref.finalize | None = None

    def acquire(self) -> None:
        """Acquires the lock, or keeps it.

        Raises:
            TrainingCheckpointError: another training holds it.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        key = (os.getpid(), os.path.realpath(self.directory))
        with _guard:
            holder = _holders.get(key)
            if holder is None:
                descriptor = _locked(self.directory)
            elif holder.thread is threading.current_thread() or not holder.thread.is_alive():
                descriptor = holder.descriptor
            else:
                raise _in_use(self.directory, f"thread '{holder.thread.name}' of this process")
            _holders[key] = holder = _Holder(descriptor, threading.current_thread())
            if self._release is not None:
                self._release.detach()
            self._release = weakref.finalize(self, _close, key, holder)

    def release(self) -> None:
        """Releases the lock, if it is held."""
        if self._release is not None:
            self._release()


def _close(key, holder):
    with _guard:
        if key[0] == os.getpid() and _holders.get(key) is holder:
            del _holders[key]
            os.close(holder.descriptor)


def _locked(directory):
    """The descriptor of the locked file."""
    path = directory / _FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    with on_failure(os.close, descriptor):
        _lock(path, descriptor)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {_host()}".encode())
    return descriptor


def _lock(path, descriptor):
    if fcntl is None:
        return
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            owner = os.read(descriptor, 200).decode(errors="replace")
            raise _in_use(path.parent, owner or "another process") from None
        warnings.warn(f"'{path}' cannot be locked ({error}): a second training there is not noticed.", stacklevel=5)


def _in_use(directory, owner):
    return TrainingCheckpointError(
        f"'{directory}' is in use: a training in {owner} saves there. Use one directory per training."
    )


def _host():
    return os.uname().nodename if hasattr(os, "uname") else "this machine"
