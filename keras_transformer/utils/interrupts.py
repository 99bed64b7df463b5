"""Handling of Ctrl-C and SIGTERM in the command line.

An exception raised during the import of TensorFlow is sometimes swallowed there, or crashes the interpreter. So the handler
does not raise: it removes partial output, prints one line and ends the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from keras_transformer.utils import captured_stderr

_MESSAGE = b"keras-transformer: error: interrupted; partial output was removed\n"


@contextlib.contextmanager
def ends_cleanly() -> Iterator[None]:
    """Context in which SIGINT ends the process with status 130 and SIGTERM with 143, and partial output is removed."""
    before = {}
    with contextlib.suppress(ValueError):  # not the main thread, which alone may handle signals
        before = {number: signal.signal(number, _end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    bundle = sys.modules.get("keras_transformer.export.bundle.writing")
    if bundle is not None:
        bundle.abandon_all()
    with contextlib.suppress(OSError):
        os.write(captured_stderr.real_stderr(), _MESSAGE)
    os._exit(128 + number)
