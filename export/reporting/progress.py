"""Progress of long work: a bar on a terminal, lines elsewhere, on stderr."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from keras_transformer.utils.captured_stderr import real_stderr

Progress = bool | Callable[[str], object]
_WIDTH = 24
_AFTER_S, _EVERY_S = 1.0, 0.5


class Steps:
    """Reports the steps of one piece of work; a context manager, which clears the bar at its end.

    Args:
        total: int: how many steps there are.
        progress: True for stderr, a function that is called with lines of text, or False for nothing.

    Example:

    >>> with Steps(2, print) as steps:
    ...     steps.begin("writing onnx")
    ...     steps.note("wrote 3 MB")
    ...     steps.begin("verifying onnx")
    [1/2] writing onnx
    wrote 3 MB
    [2/2] verifying onnx
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total, self._number, self._text = total, 0, ""
        stream: TextIO | None = sys.stderr if progress is True else None
        self._bar = stream if stream is not None and stream.isatty() else None
        self._print = _line_printer(stream) if stream is not None else progress or None
        self._since = time.monotonic()
        self._lock, self._done = threading.RLock(), threading.Event()
        self._ticking: threading.Thread | None = None

    def begin(self, text: str) -> None:
        """Begins the next step."""
        self._number += 1
        self._text, self._since = text, time.monotonic()
        if self._bar is not None:
            self._draw()
            self._tick()
        elif callable(self._print):
            self._print(f"[{self._number}/{self._total}] {text}")

    def note(self, text: str) -> None:
        """Adds a result of the step."""
        if self._bar is not None:
            self._clear()
        if callable(self._print):
            self._print(text)
        if self._number:
            self._draw()

    def _tick(self) -> None:
        """Keeps the seconds of the current step going."""
        if self._ticking is None:
            self._ticking = threading.Thread(target=self._redraw, daemon=True)
            self._ticking.start()

    def _redraw(self) -> None:
        while not self._done.wait(_EVERY_S):
            with self._lock:
                if not self._done.is_set():
                    self._draw()

    def _draw(self) -> None:
        """The share of the steps that are complete, and the current one with its seconds."""
        done = round(_WIDTH * min((self._number - 1) / max(self._total, 1), 1.0))
        seconds = time.monotonic() - self._since
        line = f"[{'=' * done}{' ' * (_WIDTH - done)}] {self._number}/{self._total} {self._text}"
        line += f" ({seconds:.0f} s)" if seconds >= 1 else ""
        self._write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")

    def _clear(self) -> None:
        self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        if self._bar is not None:
            with self._lock:
                self._bar.write(text)
                self._bar.flush()

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        if self._ticking is not None:
            self._ticking.join()
        if self._number:
            self._clear()


def _line_printer(stream: TextIO) -> Callable[[str], object]:
    return lambda line: print(line, file=stream, flush=True)


class Activity:
    """Shows one line on stderr while work takes longer than a second: on a terminal with the seconds, rewritten in place.

    Elsewhere each new text is a line. A context manager; on a terminal the line is removed at its end.

    Args:
        text: what is done at first.

    Example:

    >>> with Activity("reading") as activity:
    ...     activity.set("computing")
    """

    def __init__(self, text: str) -> None:
        self._text = text
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

    def set(self, text: str) -> None:
        """Says what is done now."""
        self._text = text

    def _run(self) -> None:
        if self._done.wait(_AFTER_S):
            return
        is_terminal = _is_terminal()
        while True:
            self._show(is_terminal)
            if self._done.wait(_EVERY_S):
                break
        if is_terminal:
            _write("\r\x1b[K")

    def _show(self, is_terminal: bool) -> None:
        text = self._text
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
