"""Ctrl-C and SIGTERM for the processes that this package starts.

An exception raised while TensorFlow is being imported is now and then swallowed there, or crashes the interpreter. So
the handler does not raise: it removes what is half-written, says one line and ends the process.
"""

import contextlib
import os
import signal
import sys

from keras_transformer.utils import captured_stderr as quiet

_MESSAGE = b"keras-transformer: error: interrupted; nothing half-written was kept\n"


@contextlib.contextmanager
def ends_cleanly():
    """Within the block, SIGINT ends the process with status 130 and SIGTERM with 143, leaving nothing half-written."""
    before = {}
    with contextlib.suppress(ValueError):  # not the main thread, which alone may handle signals
        before = {number: signal.signal(number, _end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number, frame):
    bundle = sys.modules.get("keras_transformer.export.bundle.writing")
    if bundle is not None:
        bundle.abandon_all()
    with contextlib.suppress(OSError):
        os.write(quiet.real_stderr(), _MESSAGE)
    os._exit(128 + number)
