"""HTTP responses of the gateway that replicas make: whole ones and streams."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Coroutine
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

_LOG = logging.getLogger(__name__)
_UNWATCHED_S = 0.05


class Streamed(Response):
    """A streamed response that is cancelled when the client disconnects."""

    def __init__(self, start: JsonObject, events: AsyncGenerator[Any, None]) -> None:
        self.status_code, self.background = start["status"], None
        self._start, self._events = start, events

    @property
    def events(self) -> AsyncGenerator[bytes, None]:
        """The pieces of the body."""
        return self._events

    def with_events(self, events: AsyncGenerator[bytes, None]) -> Streamed:
        """The same response with other pieces, which are made of its own; closing them closes these."""
        return Streamed(self._start, _closing(events, self._events))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._events.aclose()

    async def _send(self, send: Send):
        await send(self._start)
        try:
            async for piece in self._events:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Exception:  # The boundary of the server: without its last event the client knows that the stream failed.
            _LOG.exception("a stream failed")
        await send({"type": "http.response.body", "body": b""})


async def _closing(
    events: AsyncGenerator[bytes, None], source: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """Pieces that are made of others; both end together."""
    async with contextlib.aclosing(source), contextlib.aclosing(events):
        async for each in events:
            yield each


async def _disconnected(receive: Receive):
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(request: Request, call: Coroutine[Any, Any, Any]) -> Any:
    """The result of a call, which is cancelled when the client of a request disconnects.

    A call that takes less than `_UNWATCHED_S` is not watched: watching costs as much time as a part of a small model.

    Raises:
        ClientDisconnect: the client has gone.
    """
    calling = asyncio.create_task(call)
    leaving = None
    try:
        await asyncio.wait((calling,), timeout=_UNWATCHED_S)
        if not calling.done():
            leaving = asyncio.create_task(_disconnected(request.receive))
            await asyncio.wait((calling, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not calling.done():
            raise ClientDisconnect()
        return calling.result()
    finally:
        started = [task for task in (calling, leaving) if task is not None and not task.done()]
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def is_stream(start: Any) -> bool:
    """Whether the first ASGI message of a response announces a stream of events."""
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in start["headers"])


def as_response(start: Any, content: bytes) -> Response:
    """The response with the status and the headers of an ASGI message."""
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    headers.pop("content-length", None)
    return Response(content, start["status"], headers)
