"""The middleware of every HTTP server here: access, limits on bodies, and the refusal of requests while a server ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from keras_transformer.utils.http.access import Access, AccessError
from keras_transformer.utils.http.refusals import refusal
from keras_transformer.utils.http.traffic import Traffic

_CLOSE = {"Connection": "close"}


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
        application: Callable[[Any, Any, Any], Awaitable[None]],
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

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, send)
            return
        with self.traffic.request():
            body = _Body(receive, self._max_bytes, asyncio.get_running_loop().time() + self._read_s)
            await self.application(scope, body.receive, send)

    def _refusal(self, scope: Any) -> Any:
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


def _is_preflight(scope: Any, access: Access) -> bool:
    """Whether a browser asks what a page that is allowed may send; it sends no key with that."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    asks = scope["method"] == "OPTIONS" and b"access-control-request-method" in headers
    return asks and "://" in origin and origin in access.origins


class _Body:
    """Reads the body of one request within limits."""

    def __init__(self, receive: Any, max_bytes: int, deadline: float) -> None:
        self._receive, self._left, self._deadline = receive, max_bytes, deadline
        self._max_bytes, self._is_read = max_bytes, False

    async def receive(self) -> Any:
        if self._is_read:  # What follows is the end of the connection.
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "the body did not arrive in time", _CLOSE) from None
        self._is_read = message["type"] != "http.request" or not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            # The connection stays: a client that is still sending would not see the response when it is closed.
            raise HTTPException(413, f"the body has more than {self._max_bytes} bytes")
        return message
