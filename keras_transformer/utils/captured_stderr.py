"""Capture of stderr: converters print pages on success, which are only needed on failure."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import IO

_LOGGERS = ("tensorflow", "absl", "tf2onnx", "tf2onnx.tfonnx", "h5py", "onnxscript", "onnx_ir")


# Duplicates of the real stderr, one for each capture in progress.
_saved: list[int] = []
# Two threads that restore the descriptor in another order would lose it.
_capturing = threading.RLock()


def real_stderr() -> int:
    """Returns the file descriptor of the real stderr, whether or not it is being captured."""
    return _saved[0] if _saved else 2


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Context that captures the output of Python loggers, warnings and C++ code on stderr.

    Yields:
        A function that returns the output captured so far.
    """
    with captured_stderr() as read, warnings.catch_warnings(), _silenced_loggers():
        warnings.simplefilter("ignore")
        yield read


@contextlib.contextmanager
def _silenced_loggers() -> Iterator[None]:
    """Context that raises the levels of loggers, whose handlers may bypass the file descriptor."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextlib.contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
    """Context that redirects file descriptor 2, which C++ code writes to, to a temporary file.

    The descriptor belongs to the process: while one thread captures it, contexts of other threads do nothing.
    """
    if not _capturing.acquire(blocking=False):
        yield str
        return
    try:
        with _capture() as read:
            yield read
    finally:
        _capturing.release()


@contextlib.contextmanager
def _capture() -> Iterator[Callable[[], str]]:
    try:
        sys.stderr.flush()
        saved = os.dup(2)
    except (OSError, ValueError, AttributeError):  # The process has no stderr.
        yield str
        return
    with tempfile.TemporaryFile() as caught:
        _saved.append(saved)
        os.dup2(caught.fileno(), 2)
        try:
            yield lambda: _content(caught)
        finally:
            os.dup2(saved, 2)
            _saved.remove(saved)
            os.close(saved)


def _content(file: IO[bytes]) -> str:
    position = file.tell()
    file.seek(0)
    text = file.read().decode(errors="replace")
    file.seek(position)
    return text


@functools.cache
def quiet_exit() -> None:
    """Drops what C++ code writes to stderr when the process ends, after Python; Python's own messages still come."""
    atexit.register(_leave_to_python)


def _leave_to_python() -> None:
    try:
        sys.stderr.flush()
        if sys.stderr.fileno() == 2:
            sys.stderr = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors=sys.stderr.errors, buffering=1)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):  # The process has no stderr.
        return
