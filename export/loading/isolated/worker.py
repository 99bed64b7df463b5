"""The process of an untrusted bundle: `python -m keras_transformer.export.loading.isolated.worker`.

It reads requests of its parent on stdin and replies on stdout: see `messages`. Its memory is limited, it writes no large
files, and it ends by itself where a call takes much too long, so that it never outlives its parent for long.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from keras_transformer.export.errors import ExportError
from keras_transformer.export.loading.isolated import messages
from keras_transformer.export.loading.isolated.isolation import Isolation
from keras_transformer.export.loading.load import load
from keras_transformer.utils.errors import library_exceptions

# The parent ends the process at the limit: this is for a process without one.
_TIMES_SECONDS = 2.0
# What runtimes print on stderr is caught in a file.
_FILE_BYTES = 2**20


def main() -> None:
    """Loads the bundle of the first request, then runs a method for each further one until stdin ends."""
    requests, replies = sys.stdin.buffer, _replies()
    arguments = pickle.load(requests)  # The parent is trusted; replies to it are not pickled.
    limits: Isolation = arguments.pop("isolated")
    _limit(limits)
    model: Any = None

    def open_model() -> list[object]:
        nonlocal model
        model = load(**arguments)
        return []

    _reply(replies, limits.loading_seconds, open_model)
    while model is not None:
        try:
            method, values, options = pickle.load(requests)
        except EOFError:
            return
        _reply(replies, limits.seconds, lambda: _METHODS[method](model, *values, **options))  # noqa: B023


_METHODS: dict[str, Callable[..., Any]] = {
    "call": lambda model, arrays: model(arrays),
    "tokenize": lambda model, texts, **options: dict(model.tokenizer(texts, **options)),
    "generate": lambda model, prompts, **options: model.generate(prompts, **options),
}


def _replies() -> BinaryIO:
    """The stream for replies. What libraries print goes nowhere."""
    replies = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return replies


def _limit(limits: Isolation) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _reply(replies: BinaryIO, seconds: float, run: Callable[[], object]) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _TIMES_SECONDS * seconds)
    try:
        parts = messages.encoded(run())
    except library_exceptions(ExportError, ImportError) as error:
        parts = messages.encoded_error(error)
    signal.setitimer(signal.ITIMER_REAL, 0)
    for part in parts:
        replies.write(part)
    replies.flush()


if __name__ == "__main__":
    main()
