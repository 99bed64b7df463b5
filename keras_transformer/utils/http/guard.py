"""The middleware of every HTTP server here: access, limits on bodies, and the refusal of requests while a server ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from keras_transformer.utils.http.access import Access, AccessError
from keras_transformer.utils.http.refusals import refusal

if TYPE_CHECKING:
    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_CLOSE = {"Connection": "close"}
# What is left of a body when its request is answered.
_MAX_IGNORED_BYTES, _IGNORE_S, _PAUSE_S = 256 << 20, 5.0, 0.5


class Traffic:
    """Number of requests in progress, and whether further ones are refused.

    Args:
        max_requests: int >= 1: largest number of requests in progress, from the first byte of a body to the last of the
            response.

    Example:

    >>> traffic = Traffic(max_requests=1)
    >>> with traffic.request():
    ...     print(traffic.refused())
    (429, '1 requests are in progress: try again later')
    >>> traffic.is_draining = True
    >>> traffic.refused()
    (503, 'the server is shutting down')
    """

    def __init__(self, max_requests: int = 1024) -> None:
        self._max_requests = max_requests
        self.active = 0
        self.is_draining = False

    def refused(self) -> tuple[int, str] | None:
        """Status and reason if no further request is accepted now."""
        if self.is_draining:
            return 503, "the server is shutting down"
        if self.active >= self._max_requests:
            return 429, f"{self.active} requests are in progress: try again later"
        return None

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Context of an accepted request."""
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1


class Guard:
    """An ASGI application in front of another one, which only gets requests that may be answered.

    Args:
        application: the ASGI application. It answers an `HTTPException`, which reading a body may raise.
        access: `Access`.
        max_bytes: int: size of a body; 413 for more.
        read_s: float: seconds for the whole body; 408 after that.
        traffic: `Traffic`, or None for a new one.

    Attributes:
        traffic: `Traffic`: what is in progress; 503 while it drains, 429 for more than it accepts.
    """

    def __init__(
        self,
        application: ASGIApp,
        access: Access,
        max_bytes: int = 4 << 20,
        read_s: float = 30.0,
        traffic: Traffic | None = None,
    ) -> None:
        self.application, self.access = application, access
        self.traffic = traffic or Traffic()
        self._max_bytes, self._read_s = max_bytes, read_s
        named = [each for each in access.origins if "://" in each]
        if named:  # Pages of other sites that may read the responses.
            headers = ["Authorization", "Content-Type", "Inference-Header-Content-Length"]
            shared: Any = {"allow_methods": ["GET", "POST"], "allow_headers": headers, "expose_headers": headers[2:]}
            self.application = CORSMiddleware(application, allow_origins=named, **shared)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        body = _Body(scope, receive, send, self._max_bytes, self._read_s)
        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, body.receive, body.send)
            return
        with self.traffic.request():
            await self.application(scope, body.receive, body.send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        path = scope["path"]
        try:
            self.access.check(scope, needs_key=not _is_preflight(scope, self.access))
        except AccessError as error:
            wanted = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
            return refusal(error.status, error.reason, path=path, headers=wanted)
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not declared.isdigit() or len(declared) > 18 or int(declared) > self._max_bytes:
            return refusal(413, f"the body has more than {self._max_bytes} bytes", path=path)
        full = self.traffic.refused()
        if full is not None:
            return refusal(*full, path=path, headers=_CLOSE if full[0] == 503 else None)
        return None


def _is_preflight(scope: Scope, access: Access) -> bool:
    """Whether a browser asks what a page that is allowed may send; it sends no key with that."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    asks = scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
    return asks and "://" in origin and origin in access.origins


class _Body:
    """Reads the body of one request within limits, and what is left of it before the response.

    A connection that is closed with bytes that nobody has read is reset, and the client may not see the response.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_bytes: int, read_s: float) -> None:
        self._receive, self._send = receive, send
        self._left, self._max_bytes = max_bytes, max_bytes
        self._deadline = asyncio.get_running_loop().time() + read_s
        names = {name for name, value in scope["headers"] if value != b"0"}
        self._has_rest = b"content-length" in names or b"transfer-encoding" in names
        self._is_read = False

    async def receive(self) -> Message:
        if self._is_read:  # What follows is the end of the connection.
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._next()
        except TimeoutError:
            self._has_rest = False
            raise HTTPException(408, "the body did not arrive in time", _CLOSE) from None
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HTTPException(413, f"the body has more than {self._max_bytes} bytes")
        return message

    async def send(self, message: Message) -> None:
        if self._has_rest and message["type"] == "http.response.start":
            await self._discard()
        await self._send(message)

    async def _next(self) -> Message:
        message = await self._receive()
        self._is_read = message["type"] != "http.request" or not message.get("more_body", False)
        self._has_rest = self._has_rest and not self._is_read
        return message

    async def _discard(self) -> None:
        left = _MAX_IGNORED_BYTES
        with contextlib.suppress(TimeoutError):
            end = asyncio.get_running_loop().time() + _IGNORE_S
            while self._has_rest and left > 0:
                async with asyncio.timeout_at(min(end, asyncio.get_running_loop().time() + _PAUSE_S)):
                    left -= len((await self._next()).get("body", b""))
        self._has_rest = False
