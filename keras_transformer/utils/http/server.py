"""A server that answers what it has accepted before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import select
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from keras_transformer.utils.http.connections import ConnectionLimits, protocol_class
from keras_transformer.utils.http.guard import Guard

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

# Requests on their way when a server is told to end are refused with a status for so long, instead of a broken connection.
_REFUSING_S = 0.5
_BACKLOG = 2048
# How long connections are accepted then, at most, and the pauses without any after which there are none.
_ACCEPTING_S, _PAUSE_S, _PAUSES = 1.0, 0.02, 3


class Server(uvicorn.Server):
    """A uvicorn server of a guarded application.

    SIGINT and SIGTERM make it refuse new requests with 503, and end when the accepted ones are answered. A second signal
    ends it at once.

    Args:
        guard: `Guard`.
        connections: `ConnectionLimits`, or None for its defaults.
        beside: async context manager, such as another server with the same `Traffic`; entered in the loop of the server.
    """

    def __init__(
        self,
        guard: Guard,
        connections: ConnectionLimits | None = None,
        beside: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        limits = connections or ConnectionLimits()
        options: dict[str, Any] = {
            "http": protocol_class(limits),
            "ws": "none",
            "timeout_keep_alive": limits.idle_s,
            "timeout_graceful_shutdown": 5,
        }
        quiet: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
        super().__init__(uvicorn.Config(guard, lifespan="off", **options, **quiet))
        self.traffic = guard.traffic
        self._beside = beside or contextlib.nullcontext()
        self._drains_from: float | None = None

    def drain(self) -> None:
        """Makes the server end when the accepted requests are answered. May be called from another thread."""
        self._drains_from = time.monotonic()
        self.traffic.is_draining = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._drains_from is None:
            self.drain()
        else:
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self._drains_from is not None and not self.traffic.active:
            self.should_exit |= time.monotonic() > self._drains_from + _REFUSING_S
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._beside.__aenter__()
        # Garbage collection ignores the objects that exist already, modules and models: visiting them takes tens of
        # milliseconds, and bodies of many lists would cause that several times a second.
        gc.collect()
        gc.freeze()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._accept_rest(sockets or [])
        await super().shutdown(sockets)
        gc.unfreeze()
        await self._beside.__aexit__(None, None, None)

    async def _accept_rest(self, sockets: list[socket.socket]) -> None:
        """Accepts the connections that wait, and refuses their requests with a status.

        The system resets those that wait at a listening socket when it is closed.
        """
        for each in sockets:
            each.listen(0)  # Further ones are not completed: their clients try again, or are told that nobody listens.
        end, pauses = time.monotonic() + _ACCEPTING_S, 0
        while sockets and not self.force_exit and pauses < _PAUSES and time.monotonic() < end:
            await asyncio.sleep(_PAUSE_S)
            waiting = select.select(sockets, [], [], 0)[0]
            unasked = [each for each in self.server_state.connections if getattr(each, "cycle", None) is None]
            pauses = 0 if waiting or unasked else pauses + 1


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket.

    Args:
        host: str: an address or a name.
        port: int; 0 for a free one.

    Raises:
        OSError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def run_server(
    guard: Guard,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    connections: ConnectionLimits | None = None,
    beside: AbstractAsyncContextManager[object] | None = None,
    on_start: Callable[[str], None] | None = None,
) -> None:
    """Serves an application until SIGINT or SIGTERM, and then until every accepted request is answered.

    Args:
        guard: `Guard`, such as the result of `http_application`.
        host: str: address to listen on. Default `"127.0.0.1"`: only this machine.
        port: int; 0 for a free one. Default 8000.
        connections: `ConnectionLimits`, or None for its defaults.
        beside: async context manager that runs with the server, or None.
        on_start: function of the URL, called when the server listens.

    Raises:
        OSError: the address cannot be had.

    Example:

    ```python
    run_server(http_application("bundle"), port=8000)
    ```
    """
    with listen(host, port) as listener:
        if on_start is not None:
            shown = f"[{host}]" if ":" in host else host
            on_start(f"http://{shown}:{listener.getsockname()[1]}")
        Server(guard, connections, beside).run(sockets=[listener])
