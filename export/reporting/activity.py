"""What a command is doing, on stderr, once it has taken a second."""

from __future__ import annotations

import contextlib
import os
import threading
import time

from keras_transformer.utils.captured_stderr import real_stderr

_AFTER = 1.0
_EVERY = 0.5


class Activity:
    """Shows one line on stderr while work takes longer than a second: on a terminal with the seconds, rewritten in place.

    Elsewhere each new text is a line. A context manager; on a terminal the line is removed at its end.

    Args:
        text: what is done at first.

    Example:

    >>> with Activity("reading") as activity:
    ...     activity.text = "computing"
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._shown = ""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Activity:
        self._start = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        if self._done.wait(_AFTER):
            return
        is_terminal = _is_terminal()
        while True:
            self._show(is_terminal)
            if self._done.wait(_EVERY):
                break
        if is_terminal:
            _write("\r\x1b[K")

    def _show(self, is_terminal: bool) -> None:
        text = self.text
        if is_terminal:
            line = f"{text} ({time.perf_counter() - self._start:.0f} s)"
            _write(f"\r\x1b[K{line[: _columns() - 1]}")
        elif text != self._shown:
            _write(f"{text}\n")
        self._shown = text


def _is_terminal() -> bool:
    with contextlib.suppress(OSError):
        return os.isatty(real_stderr())
    return False


def _columns() -> int:
    with contextlib.suppress(OSError):
        return os.get_terminal_size(real_stderr()).columns
    return 80


def _write(text: str) -> None:
    """Writes to the real stderr, past a capture of it."""
    with contextlib.suppress(OSError):
        os.write(real_stderr(), text.encode())
