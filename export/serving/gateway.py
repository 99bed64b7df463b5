"""The HTTP side: reads requests, has them answered by replicas, and turns whatever goes wrong into a status and a reason."""

import asyncio
import contextlib
import json
import logging
import secrets
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from keras_transformer.export.errors import one_line
from keras_transformer.export.serving.metrics import Metrics
from keras_transformer.export.serving.requests import RequestError, write_outputs
from keras_transformer.export.serving.resumable_stream import ResumableStream
from keras_transformer.generation.engine.completions import InvalidBodyError, read_body

_LOG = logging.getLogger(__name__)
_BUSY, _UNAVAILABLE = 429, 503
_CLIENT_GONE = 499


class ReplicaDiedError(Exception):
    """A replica ended before it had answered; another may be asked."""


class Gateway:
    """An ASGI application before replicas.

    Args:
        name: str: what clients call the model.
        replicas: what answers: `predict(signature, arrays)`, a coroutine that gives the arrays and the number of examples
            computed together, `complete(body)`, an asynchronous generator of ASGI messages, and `is_healthy()`, a coroutine;
            they raise `RequestError` and `ReplicaDiedError`.
        reader: `Reader` of a model of arrays; None for a language model.
        limits: `Limits`.
        described: dict: the model in words, for `/v1/models/NAME`.
        retries: int >= 0: how often a request is sent again when a replica dies with it.
    """

    def __init__(self, name, replicas, reader, limits, described, retries=8):
        self._name, self._replicas, self._reader, self._limits = name, replicas, reader, limits
        self._described, self._retries = described, retries
        self._metrics = Metrics(name)
        routes = [Route("/health", self._health), Route("/metrics", self._figures), Route("/v1/models", self._models)]
        routes.append(Route("/v1/models/{name}", self._model))
        if reader is None:
            routes.append(Route("/v1/completions", self._counted(self._complete), methods=["POST"]))
        else:
            routes.append(Route("/v1/models/{name}:predict", self._counted(self._predict), methods=["POST"]))
            routes[-2:] = reversed(routes[-2:])  # The one with a suffix first: the other takes any name.
        handlers = {HTTPException: _refuse_http, Exception: _hide}
        self.application = Starlette(routes=routes, exception_handlers=handlers)

    def _counted(self, answer):
        """The endpoint, with its time and status counted, and its errors as answers."""

        async def counted(request):
            self._metrics.began()
            start, status = time.perf_counter(), 500
            try:
                response = await self._answered(answer, request)
                status = response.status_code
                return response
            except asyncio.CancelledError:
                status = _CLIENT_GONE
                raise
            finally:
                self._metrics.ended(status, time.perf_counter() - start)

        return counted

    async def _answered(self, answer, request):
        try:
            return await answer(request)
        except RequestError as error:
            return _refusal(error.status, error.reason)
        except InvalidBodyError as error:
            return _refusal(400, str(error), error.parameter)
        except ReplicaDiedError:
            return _refusal(_UNAVAILABLE, "every replica that was asked has died")
        except TimeoutError:
            return _refusal(504, f"no answer within {self._limits.timeout_s:g} seconds")
        except ClientDisconnect:
            return Response(status_code=_CLIENT_GONE)
        except HTTPException:
            raise
        except Exception as error:  # Whatever it is, its traceback is for the log.
            _LOG.exception("a request failed")
            return _refusal(500, f"the server failed: {type(error).__name__}")

    # Arrays.

    async def _predict(self, request):
        self._check_name(request.path_params["name"])
        body = await self._body(request)
        signature, arrays = self._reader.read(body)
        async with asyncio.timeout(self._limits.timeout_s):
            outputs, examples = await self._retried(lambda: self._replicas.predict(signature, arrays))
        self._metrics.computed(examples)
        return Response(write_outputs(outputs), media_type="application/json")

    async def _retried(self, ask):
        for attempt in range(self._retries + 1):
            try:
                return await ask()
            except ReplicaDiedError:
                if attempt == self._retries:
                    raise
                self._metrics.retried()
                await asyncio.sleep(min(0.05 * 2**attempt, 1.0))

    # Text.

    async def _complete(self, request):
        body = await self._body(request)
        asked = read_body(body)
        if asked.model not in (None, self._name):
            raise RequestError(404, f"there is no model '{asked.model:.80}'; this is '{self._name}'")
        if asked.options["seed"] is None:  # Whoever begins again must write the same.
            body = json.dumps({**json.loads(body), "seed": secrets.randbelow(2**31)}).encode()
        if asked.stream:
            return await self._stream(body)
        async with asyncio.timeout(self._limits.timeout_s):
            return await self._retried(lambda: self._whole(body))

    async def _whole(self, body):
        start, content = None, b""
        async for message in self._replicas.complete(body):
            start = start or message
            content += message.get("body", b"")
        return _response(start, content)

    async def _stream(self, body):
        """A stream whose beginning, or refusal, has come."""
        events = self._events(body, ResumableStream())
        start = await anext(events)
        if not _is_stream(start):
            return _response(start, b"".join([each async for each in events]))
        return _Streamed(start, events)

    async def _events(self, body, resumed):
        """The message that begins an answer, then its pieces, over as many replicas as it takes."""
        start = None
        for attempt in range(self._retries + 1):
            resumed.begin_again()
            try:
                async with contextlib.aclosing(self._replicas.complete(body)) as messages:
                    async for message in messages:
                        if message["type"] == "http.response.start":
                            if start is None:
                                start = message
                                yield start
                            elif _is_stream(message) != _is_stream(start):
                                break  # The next replica has no room for it yet.
                            continue
                        piece = message.get("body", b"")
                        piece = resumed.take(piece) if piece and _is_stream(start) else piece
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
        refusal = {"error": {"message": "every replica that was asked has died", "type": "server_error"}}
        yield b"data: " + json.dumps(refusal).encode() + b"\n\n"

    # The rest.

    async def _body(self, request):
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > self._limits.max_bytes:
                raise RequestError(413, f"the body has more than {self._limits.max_bytes} bytes")
        return body

    def _check_name(self, name):
        if name != self._name:
            raise RequestError(404, f"there is no model '{name:.80}'; this is '{self._name}'")

    async def _models(self, request):
        return JSONResponse({"object": "list", "data": [{"id": self._name, "object": "model", "owned_by": "user"}]})

    async def _model(self, request):
        name = request.path_params["name"]
        if name == f"{self._name}:predict":
            return _refusal(405, "a request is sent with POST")
        if name != self._name:
            return _refusal(404, f"there is no model '{name:.80}'; this is '{self._name}'")
        return JSONResponse(self._described)

    async def _health(self, request):
        try:
            async with asyncio.timeout(5):
                await self._replicas.is_healthy()
        except Exception as error:
            return JSONResponse({"status": "unavailable", "reason": one_line(error)}, _UNAVAILABLE)
        return JSONResponse({"status": "ok"})

    async def _figures(self, request):
        content, kind = self._metrics.text()
        return Response(content, headers={"content-type": kind})


class _Streamed(Response):
    """Sends pieces as they come; when the client goes away, so does what writes them."""

    def __init__(self, start, events):
        self.status_code, self.background = start["status"], None
        self._start, self._events = start, events

    async def __call__(self, scope, receive, send):
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._events.aclose()

    async def _send(self, send):
        await send(self._start)
        try:
            async for piece in self._events:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Exception:  # The stream ends without its last event, by which the client knows.
            _LOG.exception("a stream failed")
        await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


def _is_stream(start):
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in start["headers"])


def _response(start, content):
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    headers.pop("content-length", None)
    return Response(content, start["status"], headers)


def _refusal(status, reason, parameter=None):
    kind = "server_error" if status >= 500 else "rate_limit_error" if status == _BUSY else "invalid_request_error"
    content = {"error": {"message": reason, "type": kind, "param": parameter, "code": str(status)}}
    return JSONResponse(content, status, headers={"Retry-After": "1"} if status in (_BUSY, _UNAVAILABLE) else None)


def _refuse_http(request, error):
    refusal = _refusal(error.status_code, str(error.detail))
    refusal.headers.update(error.headers or {})
    return refusal


def _hide(request, error):
    return _refusal(500, f"the server failed: {type(error).__name__}")
