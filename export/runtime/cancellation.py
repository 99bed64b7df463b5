"""Ends a computation whose result nobody waits for any more, in runtimes that can be told."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator


class Cancellation:
    """What ends the computations of one thread.

    Example:

    >>> cancellation, ended = Cancellation(), []
    >>> with cancellation.applied(), stoppable(lambda: ended.append("stop")):
    ...     cancellation.cancel()
    >>> ended
    ['stop']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: list[Callable[[], object]] = []
        self.is_cancelled = False

    def cancel(self) -> None:
        """Ends what is computed, and what would be computed next. May be called from another thread."""
        with self._lock:
            self.is_cancelled = True
            for stop in self._stops:
                stop()

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Context in which computations of this thread can be cancelled."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    @contextlib.contextmanager
    def _stopped_by(self, stop: Callable[[], object]) -> Iterator[None]:
        with self._lock:
            self._stops.append(stop)
            if self.is_cancelled:
                stop()
        try:
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)


_current: contextvars.ContextVar[Cancellation | None] = contextvars.ContextVar("cancellation", default=None)


def is_stoppable() -> bool:
    """Whether computations of this thread can be cancelled now."""
    return _current.get() is not None


def is_cancelled() -> bool:
    """Whether the computations of this thread were cancelled."""
    found = _current.get()
    return found is not None and found.is_cancelled


def stoppable(stop: Callable[[], object]) -> contextlib.AbstractContextManager[None]:
    """Context of a computation that a function ends, where somebody may want that.

    Args:
        stop: called from another thread, at most once.
    """
    found = _current.get()
    return contextlib.nullcontext() if found is None else found._stopped_by(stop)
