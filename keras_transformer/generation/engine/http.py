"""An engine over HTTP, in the manner of OpenAI: `/v1/completions`, whole or as a stream, `/v1/models` and `/health`."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from keras_transformer.generation.engine.completions import Answer, InvalidBodyError, read_body
from keras_transformer.generation.errors import (
    EngineClosedError,
    GenerationError,
    PromptTooLongError,
    QueueFullError,
    RequestCancelledError,
)

if TYPE_CHECKING:
    from starlette.requests import Request

_LARGEST_BODY = 4 << 20
_MAX_CHOICES = 128
# Status, type and code of an error; the first class that fits.
_KINDS = {
    QueueFullError: (429, "rate_limit_error", "queue_full"),
    EngineClosedError: (503, "server_error", "engine_closed"),
    PromptTooLongError: (400, "invalid_request_error", "context_length_exceeded"),
    RequestCancelledError: (499, "invalid_request_error", "cancelled"),
    InvalidBodyError: (400, "invalid_request_error", "invalid_body"),
}
_END = object()


def application(engine: Any, model_name: str, wait: float | None = 0.0) -> Any:
    """The ASGI application of an engine.

    Every refusal is JSON with its reason: 400 for what cannot be had, 404 for another model, 413 for a body above 4 MiB, 429
    (with Retry-After) where the queue is full, 503 where the engine is closed. A client that goes away ends its requests.

    Args:
        engine: `Engine`; it stays the caller's.
        model_name: str. What clients call the model.
        wait: float, seconds that a request waits for a place in the queue before 429; None for as long as it takes.

    Returns:
        `starlette.applications.Starlette`.

    Example: `uvicorn.run(application(engine, "shakespeare"), port=8000)`, then

        curl localhost:8000/v1/completions -H "Content-Type: application/json" \\
            -d '{"prompt": "ROMEO:", "max_tokens": 64, "temperature": 0.8, "stream": true}'

    Reference: the completions endpoint of OpenAI's API; `top_k`, `min_p` and `repetition_penalty` are added, and what is not
    supported (`logprobs`, `echo`, `suffix`, ...) is refused, not ignored.
    """
    # Threads that wait for tokens: one for each text that is being written or waits.
    limiter = anyio.CapacityLimiter(10_000)
    in_thread = functools.partial(anyio.to_thread.run_sync, limiter=limiter, abandon_on_cancel=True)

    async def completions(request: Request):
        asked = read_body(await _body(request))
        if asked.model not in (None, model_name):
            raise HTTPException(404, f"There is no model {asked.model!r}; this is {model_name!r}.")
        requests = await in_thread(_submit, engine, asked, wait)
        has_text = engine.tokenizer is not None
        answer = Answer(model_name, requests, len(asked.prompts), has_text)
        return (_Stream if asked.stream else _Whole)(answer, requests, in_thread, asked.with_usage)

    async def models(request: Request):
        return JSONResponse({"object": "list", "data": [{"id": model_name, "object": "model", "owned_by": "user"}]})

    async def health(request: Request):
        status = "ok" if engine.is_open else "closed"
        return JSONResponse({"status": status, **engine.stats()}, 200 if engine.is_open else 503)

    routes = [
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/models", models),
        Route("/health", health),
    ]
    return Starlette(routes=routes, exception_handlers={GenerationError: _refuse, HTTPException: _refuse_http})


def serve(engine: Any, model_name: str, host: str = "127.0.0.1", port: int = 8000, wait: float | None = 0.0) -> None:
    """Serves an engine until the process is interrupted; running texts are completed first.

    Args:
        engine, model_name, wait: as in `application`.
        host: str.
        port: int.
    """
    import uvicorn

    uvicorn.run(application(engine, model_name, wait), host=host, port=port, log_level="warning")


class _Answering(Response):
    """Answers while it watches for the client to go away; then its requests end."""

    def __init__(self, answer, requests, in_thread, with_usage) -> None:
        self.status_code, self.background = 200, None
        self.answer, self.requests, self.in_thread, self.with_usage = answer, requests, in_thread, with_usage

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, receive, group.cancel_scope)
                await self._answer(scope, receive, send)
                group.cancel_scope.cancel()
        finally:
            for request in self.requests:
                request.cancel()

    async def _watch(self, receive: Any, scope: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError


class _Whole(_Answering):
    """All choices at once."""

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            results = [await self.in_thread(request.result) for request in self.requests]
            response = JSONResponse(self.answer.whole(results))
        except GenerationError as error:
            response = _refuse(None, error)
        await response(scope, receive, send)


class _Stream(_Answering):
    """Server-sent events: pieces of all choices as they come."""

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        writer, reader = anyio.create_memory_object_stream[Any](0)
        async with anyio.create_task_group() as group, reader:
            for index, request in enumerate(self.requests):
                group.start_soon(self._pump, index, request, writer.clone())
            writer.close()
            async for event in reader:
                await self._event(send, json.dumps(event))
        if self.with_usage:
            await self._event(send, json.dumps(self.answer.usage()))
        await self._event(send, "[DONE]")
        await send({"type": "http.response.body", "body": b""})

    async def _pump(self, index: Any, request: Request, writer: Any) -> None:
        """Sends what one request writes, then its end."""
        async with writer:
            pieces = request.stream()
            try:
                while (piece := await self.in_thread(next, pieces, _END)) is not _END:
                    await writer.send(self.answer.piece(index, piece))
                await writer.send(self.answer.piece(index, None))
            except GenerationError as error:
                await writer.send(_error(error)[1])

    async def _event(self, send: Any, data: Any) -> None:
        await send({"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": True})


def _submit(engine: Any, asked: Any, wait: float | None):
    """A request for each choice; all of them or none."""
    if len(asked.prompts) * asked.num_choices > _MAX_CHOICES:
        raise InvalidBodyError(f"At most {_MAX_CHOICES} texts at once: prompts times 'n'.", "n")
    as_text = None if engine.tokenizer is None else True
    requests = []
    try:
        for prompt in asked.prompts:
            requests += engine.submit_samples(prompt, asked.num_choices, wait=wait, as_text=as_text, **asked.options)
    except BaseException:
        for request in requests:
            request.cancel()
        raise
    return requests


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_BODY:
            raise HTTPException(413, f"The body is larger than {_LARGEST_BODY} bytes.")
    return body


def _error(error: Exception) -> tuple[int, dict]:
    """Status and JSON of an error."""
    status, kind, code = next((found for each, found in _KINDS.items() if isinstance(error, each)), (None, None, None))
    if status is None:
        failed = error.__cause__ is not None
        status, kind, code = (500, "server_error", "failed") if failed else (400, "invalid_request_error", "invalid")
    parameter = getattr(error, "parameter", None)
    return status, {"error": {"message": str(error), "type": kind, "param": parameter, "code": code}}


def _refuse(request: Request | None, error: Any) -> JSONResponse:
    status, content = _error(error)
    return JSONResponse(content, status, headers={"Retry-After": "1"} if status == 429 else None)


def _refuse_http(request: Request | None, error: Any) -> JSONResponse:
    content = {"message": error.detail, "type": "invalid_request_error", "param": None, "code": str(error.status_code)}
    return JSONResponse({"error": content}, error.status_code, headers=error.headers)
