"""Folders that belong to a running process, exchanged in one step and told from those that a dead process left."""

from __future__ import annotations

import ctypes
import errno
import os
import pathlib
import sys

try:
    import fcntl
except ImportError:  # Windows: nothing is known of other processes.
    fcntl = None  # type: ignore[assignment]

# Constants of Linux: the working directory, and that two names exchange what they stand for.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NOT_SUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}


def exchange(one: pathlib.Path, other: pathlib.Path) -> bool:
    """Exchanges two folders in one step, as `renameat2` does: each name always stands for one of them.

    Args:
        one, other: paths of folders on the same file system.

    Returns:
        Whether the system and the file system support it; if not, nothing was changed.

    Raises:
        OSError: it failed for another reason.
    """
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if function is None:
        return False
    if function(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NOT_SUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


class FolderLock:
    """The mark that a folder belongs to a process, which ends with the process, however that ends.

    Args:
        folder: path of the folder.

    Attributes:
        is_held: bool. False where another process holds it, or the file system has no locks.
        is_taken: bool. Whether another process holds it.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._descriptor: int | None = None
        self.is_held = self.is_taken = False
        if fcntl is None:
            return
        try:
            self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.is_held = True
        except OSError as error:
            self.is_taken = isinstance(error, BlockingIOError)
            self.release()

    def release(self) -> None:
        """Gives the folder up."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self.is_held = None, False
