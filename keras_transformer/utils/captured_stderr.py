"""Silence for the converters, which print pages on success and need to be heard on failure."""

import contextlib
import logging
import os
import sys
import tempfile
import threading
import warnings

_LOGGERS = ("tensorflow", "absl", "tf2onnx", "tf2onnx.tfonnx", "h5py")


# Duplicates of the true stderr, one for each capture in progress.
_saved = []
# Two threads that put the descriptor back in another order would lose it.
_capturing = threading.RLock()


def real_stderr():
    """File descriptor that reaches the user, whether or not stderr is being caught."""
    return _saved[0] if _saved else 2


@contextlib.contextmanager
def quiet():
    """Catches everything that Python loggers, warnings and C++ code write to stderr.

    Yields:
        A function that returns what was caught so far.
    """
    with captured_stderr() as read, warnings.catch_warnings(), _levels():
        warnings.simplefilter("ignore")
        yield read


@contextlib.contextmanager
def _levels():
    """Raises the loggers' levels; their handlers may hold a stream that no file descriptor reaches."""
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
def captured_stderr():
    """Points file descriptor 2 at a temporary file, which C++ writes to, for the length of the block.

    The descriptor belongs to the process: while one thread catches it, others neither can nor need to.
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
def _capture():
    try:
        sys.stderr.flush()
        saved = os.dup(2)
    except (OSError, ValueError, AttributeError):  # a process without a stderr has nothing to silence
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


def _content(file):
    position = file.tell()
    file.seek(0)
    text = file.read().decode(errors="replace")
    file.seek(position)
    return text
