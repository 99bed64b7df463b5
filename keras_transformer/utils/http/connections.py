"""Connections of slow clients are closed: uvicorn itself waits for headers, and for readers, without a limit."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_MAX_HEAD_BYTES = 64 << 10
# What is left of a body that was refused before it was read.
_MAX_IGNORED_BYTES = 256 << 20
_OTHER_FILES = 128


@dataclasses.dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the connections of a server.

    Args:
        head_s: float: seconds for the headers of a request, from the connection or from their first byte. Default 10.
        write_s: float: seconds in which a client that has to read takes nothing. Default 30.
        idle_s: float: seconds between two requests. Default 30.
        max_connections: int: further ones are closed at once. Default 4,096, and at most what the process may open.
    """

    head_s: float = 10.0
    write_s: float = 30.0
    idle_s: float = 30.0
    max_connections: int = 4096


def protocol_class(limits: ConnectionLimits) -> type:
    """Returns uvicorn's HTTP protocol with limits on slow clients.

    Args:
        limits: `ConnectionLimits`.

    Returns:
        A class for the option `http` of `uvicorn.Config`.
    """
    most = max(1, min(limits.max_connections, _max_files() - _OTHER_FILES))
    return type("LimitedProtocol", (_Limited, _uvicorn_protocol()), {"limits": limits, "most": most})


class _Limited(asyncio.Protocol):
    """Limits of a protocol of uvicorn, which is the next base of the class.

    Attributes:
        limits: `ConnectionLimits`.
        most: int >= 1. Connections of the server; further ones are closed at once.
    """

    limits: ConnectionLimits
    most: int
    connections: set[asyncio.Protocol]
    cycle: Any
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _unused_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self.transport.abort()
            return
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop("_head_timer")
        self._stop("_write_timer")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:  # The headers of a request are complete.
            self._stop("_head_timer")
            self._unused_bytes = 0
        elif before is None or before.response_complete:
            self._wait_for_head()
            self._unused_bytes += len(data)
            ignores = before is not None and before.more_body
            if self._unused_bytes > (_MAX_IGNORED_BYTES if ignores else _MAX_HEAD_BYTES):
                self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("_write_timer")

    def _wait_for_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.head_s, self._close_slow)

    def _close_slow(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_TOO_SLOW)
            self.transport.close()

    def _stop(self, name: str) -> None:
        timer = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)


def _uvicorn_protocol() -> Any:
    """The faster one of what is installed."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

        return HttpToolsProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol

        return H11Protocol


def _max_files() -> int:
    """How many files and connections this process may open."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return 1 << 30
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
