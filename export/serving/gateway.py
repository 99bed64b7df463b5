"""The HTTP gateway: validates requests, sends them to replicas, and converts errors to a status and a reason."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from keras_transformer.export.errors import one_line
from keras_transformer.export.serving.metrics import Metrics
from keras_transformer.export.serving.requests import RequestError, write_outputs
from keras_transformer.export.serving.responses import (
    UNAVAILABLE,
    Streamed,
    as_response,
    hide_failure,
    is_stream,
    refusal,
    refuse_http,
)
from keras_transformer.export.serving.resumable_stream import ResumableStream
from keras_transformer.generation.engine.completions import InvalidBodyError, read_body

if TYPE_CHECKING:
    from keras_transformer.export.serving.requests import Limits, Reader


_LOG = logging.getLogger(__name__)
_CLIENT_GONE = 499


class ReplicaDiedError(Exception):
    """A replica ended before its response; the request can be sent to another."""


class Replicas(Protocol):
    """The replicas behind a gateway. The methods raise `RequestError` and `ReplicaDiedError`."""

    async def predict(self, signature: str, arrays: dict[str, Any], /) -> tuple[dict[str, Any], int]:
        """Returns the outputs, and the number of examples of the batch."""
        ...

    def complete(self, body: bytes, /) -> AsyncGenerator[Any, None]:
        """Yields the ASGI messages of a response."""
        ...

    async def is_healthy(self) -> None:
        """Raises if no replica can respond."""


class Gateway:
    """An ASGI application in front of replicas.

    Args:
        name: str: name of the model for clients.
        replicas: `Replicas`.
        reader: `Reader` of a model of arrays; None for a language model.
        limits: `Limits`.
        described: dict: the description of the model for `/v1/models/NAME`.
        retries: int >= 0: how often a request is retried when its replica dies.
    """

    def __init__(
        self,
        name: str,
        replicas: Replicas,
        reader: Reader | None,
        limits: Limits,
        described: dict[str, Any],
        retries: int = 8,
    ) -> None:
        self._name, self._replicas, self._reader, self._limits = name, replicas, reader, limits
        self._described, self._retries = described, retries
        self._metrics = Metrics(name)
        routes = [Route("/health", self._health), Route("/metrics", self._figures), Route("/v1/models", self._models)]
        routes.append(Route("/v1/models/{name}", self._model))
        if reader is None:
            routes.append(Route("/v1/completions", self._counted(self._complete), methods=["POST"]))
        else:
            routes.append(Route("/v1/models/{name}:predict", self._counted(self._predict), methods=["POST"]))
            routes[-2:] = reversed(routes[-2:])  # The route with a suffix first: the other matches any name.
        handlers = {HTTPException: refuse_http, Exception: hide_failure}
        self.application = Starlette(routes=routes, exception_handlers=handlers)

    def _counted(self, handler: Callable[[Any], Awaitable[Response]]) -> Callable[[Any], Awaitable[Response]]:
        """The endpoint with metrics, and with errors as responses."""

        async def counted(request):
            self._metrics.began()
            start, status = time.perf_counter(), 500
            try:
                response = await self._responded(handler, request)
                status = response.status_code
                return response
            except asyncio.CancelledError:
                status = _CLIENT_GONE
                raise
            finally:
                self._metrics.ended(status, time.perf_counter() - start)

        return counted

    async def _responded(self, handler: Callable[[Any], Awaitable[Response]], request: Any) -> Response:
        try:
            return await handler(request)
        except RequestError as error:
            return refusal(error.status, error.reason)
        except InvalidBodyError as error:
            return refusal(400, str(error), error.parameter)
        except ReplicaDiedError:
            return refusal(UNAVAILABLE, "every replica for this request has died")
        except TimeoutError:
            return refusal(504, f"no response within {self._limits.timeout_s:g} seconds")
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        except HTTPException:
            raise
        except Exception as error:  # The traceback is logged only.
            _LOG.exception("a request failed")
            return refusal(500, f"the server failed: {type(error).__name__}")

    # Arrays.

    async def _predict(self, request: Any) -> Response:
        self._check_name(request.path_params["name"])
        body = await self._body(request)
        assert self._reader is not None  # The route exists with a reader only.
        signature, arrays = self._reader.read(body)
        async with asyncio.timeout(self._limits.timeout_s):
            outputs, examples = await self._retried(lambda: self._replicas.predict(signature, arrays))
        self._metrics.computed(examples)
        return Response(write_outputs(outputs), media_type="application/json")

    async def _retried(self, call: Callable[[], Awaitable[Any]]) -> Any:
        for attempt in range(self._retries + 1):
            try:
                return await call()
            except ReplicaDiedError:
                if attempt == self._retries:
                    raise
                self._metrics.retried()
                await asyncio.sleep(min(0.05 * 2**attempt, 1.0))

    # Text.

    async def _complete(self, request: Any) -> Response:
        body = await self._body(request)
        completion = read_body(body)
        if completion.model not in (None, self._name):
            raise RequestError(404, f"there is no model '{completion.model:.80}'; this is '{self._name}'")
        if completion.options["seed"] is None:  # A retry must generate the same text.
            body = json.dumps({**json.loads(body), "seed": secrets.randbelow(2**31)}).encode()
        if completion.stream:
            return await self._stream(body)
        async with asyncio.timeout(self._limits.timeout_s):
            return await self._retried(lambda: self._whole(body))

    async def _whole(self, body: bytes) -> Response:
        start: Any = None
        content = b""
        async for message in self._replicas.complete(body):
            start = start or message
            content += message.get("body", b"")
        return as_response(start, content)

    async def _stream(self, body: bytes) -> Response:
        """The response stream, after its first message."""
        events = self._events(body, ResumableStream())
        start = await anext(events)
        if not is_stream(start):
            return as_response(start, b"".join([each async for each in events]))
        return Streamed(start, events)

    async def _events(self, body: bytes, resumed: ResumableStream) -> AsyncGenerator[Any, None]:
        """The first message of a response, then its pieces, from several replicas if one dies."""
        start: Any = None
        for attempt in range(self._retries + 1):
            resumed.restart()
            try:
                async with contextlib.aclosing(self._replicas.complete(body)) as messages:
                    async for message in messages:
                        if message["type"] == "http.response.start":
                            if start is None:
                                start = message
                                yield start
                            elif is_stream(message) != is_stream(start):
                                break  # The next replica rejects it for now.
                            continue
                        piece = message.get("body", b"")
                        piece = resumed.filter(piece) if piece and is_stream(start) else piece
                        if piece:
                            yield piece
                    else:
                        return
            except ReplicaDiedError:
                pass
            self._metrics.retried()
            await asyncio.sleep(min(0.05 * 2**attempt, 1.0))
        if start is None:
            raise ReplicaDiedError()
        failure = {"error": {"message": "every replica for this request has died", "type": "server_error"}}
        yield b"data: " + json.dumps(failure).encode() + b"\n\n"

    # The rest.

    async def _body(self, request: Any) -> bytes:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > self._limits.max_bytes:
                raise RequestError(413, f"the body has more than {self._limits.max_bytes} bytes")
        return body

    def _check_name(self, name: str) -> None:
        if name != self._name:
            raise RequestError(404, f"there is no model '{name:.80}'; this is '{self._name}'")

    async def _models(self, request: Any) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": self._name, "object": "model", "owned_by": "user"}]})

    async def _model(self, request: Any) -> Response:
        name = request.path_params["name"]
        if name == f"{self._name}:predict":
            return refusal(405, "a request is sent with POST")
        if name != self._name:
            return refusal(404, f"there is no model '{name:.80}'; this is '{self._name}'")
        return JSONResponse(self._described)

    async def _health(self, request: Any) -> Response:
        try:
            async with asyncio.timeout(5):
                await self._replicas.is_healthy()
        except Exception as error:
            return JSONResponse({"status": "unavailable", "reason": one_line(error)}, UNAVAILABLE)
        return JSONResponse({"status": "ok"})

    async def _figures(self, request: Any) -> Response:
        content, kind = self._metrics.text()
        return Response(content, headers={"content-type": kind})
