"""TensorFlow and processes that are forked: its threads do not exist in the new process, where a call never ends."""

import os

from keras_transformer.export.errors import ExportError
from keras_transformer.export.remedies import Remedy

# The process in which this package began to use TensorFlow.
_user: int | None = None


def check_process() -> None:
    """Refuses the use of TensorFlow in a process that was forked from one that used it.

    Raises:
        ExportError: this is such a process.
    """
    global _user
    if _user is None:
        _user = os.getpid()
    if _user != os.getpid():
        raise ExportError(
            "a SavedModel was loaded before this process was forked, and TensorFlow does not run in it", Remedy.PROCESS
        )
