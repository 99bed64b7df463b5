"""HTTP server of an engine, compatible with the API of OpenAI: completions of texts and chats, and its model and health."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from keras_transformer.generation.engine.chat_completions import (
    ChatResponse,
    ToolCallResponse,
    read_chat_body,
)
from keras_transformer.generation.engine.completions import Completion, CompletionResponse, InvalidBodyError, read_body
from keras_transformer.generation.errors import (
    ChatTemplateError,
    EngineClosedError,
    GenerationError,
    PromptTooLongError,
    QueueFullError,
    RequestCancelledError,
    UnknownModelError,
)
from keras_transformer.utils.errors import on_failure
from keras_transformer.utils.http.access import Access
from keras_transformer.utils.http.guard import Guard
from keras_transformer.utils.http.refusals import error_code, model_record
from keras_transformer.utils.http.server import run_server

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from keras_transformer.generation.engine.engine import Engine
    from keras_transformer.generation.engine.request import Request as EngineRequest


_MAX_BODY_BYTES = 4 << 20
_MAX_CHOICES = 128
# Status, type and code of an error; the first class that matches.
_ERROR_CODES = {
    UnknownModelError: (404, "invalid_request_error", "model_not_found"),
    QueueFullError: (429, "rate_limit_error", "queue_full"),
    EngineClosedError: (503, "server_error", "engine_closed"),
    PromptTooLongError: (400, "invalid_request_error", "context_length_exceeded"),
    RequestCancelledError: (499, "invalid_request_error", "cancelled"),
    InvalidBodyError: (400, "invalid_request_error", "invalid_value"),
    ChatTemplateError: (400, "invalid_request_error", "invalid_value"),  # The messages are those of the client.
}
_END = object()


def application(engine: Engine, model_name: str, wait: float | None = 0.0) -> Starlette:
    """Returns the ASGI application of an engine.

    Errors are JSON: 400 for an invalid request, 404 for an unknown model, 413 for a body above 4 MiB, 429 (with Retry-After)
    for a full queue, 503 for a closed engine. Disconnecting cancels the requests of a client.

    Args:
        engine: `Engine`. The application does not close it.
        model_name: str. Name of the model in the API.
        wait: float. Seconds that a request waits while the queue is full, before 429; None for no limit. Default 0.

    Returns:
        `starlette.applications.Starlette`.

    Example: `uvicorn.run(application(engine, "shakespeare"), port=8000)`, then

        curl localhost:8000/v1/completions -H "Content-Type: application/json" \\
            -d '{"prompt": "ROMEO:", "max_tokens": 64, "temperature": 0.8, "stream": true}'

    `response_format` of the types "json_object" and "json_schema" makes an answer JSON, or JSON of a schema.

    Chats need a tokenizer with a chat template. A call that `tool_choice` requires is in "tool_calls" of the answer; without
    it, calls are part of its text, in the form of the model.

    Reference: the completions and chat completions endpoints of the OpenAI API, with the additional parameters `top_k`,
    `min_p` and `repetition_penalty`. Unsupported parameters (`echo`, `suffix`, ...) are errors. What a request does not say
    of sampling is as the model says (`SamplingDefaults`), otherwise greedy.
    """
    # Each running or waiting request needs a thread that waits for its tokens.
    started = int(time.time())
    limiter = anyio.CapacityLimiter(10_000)
    in_thread = functools.partial(anyio.to_thread.run_sync, limiter=limiter, abandon_on_cancel=True)

    async def completions(request: Request) -> Response:
        # In a thread: schemas and templates may take long.
        completion = await in_thread(read_body, await _body(request), engine.sampling)
        return await answer(completion, CompletionResponse)

    async def chat(request: Request) -> Response:
        completion = await in_thread(read_chat_body, await _body(request), engine.chat_prompt, engine.sampling)
        return await answer(completion, ToolCallResponse if completion.is_call else ChatResponse)

    async def answer(completion: Completion, form: type[CompletionResponse]) -> Response:
        if completion.model not in (None, model_name):
            raise UnknownModelError(f"Unknown model {completion.model!r}. The model of this server is {model_name!r}.")
        requests = await in_thread(_submit, engine, completion, wait)
        response = form(model_name, requests, len(completion.prompts), engine.tokenizer)
        kind = _StreamingResponse if completion.stream else _FullResponse
        return kind(response, requests, in_thread, completion.with_usage)

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model_record(model_name, started)]})

    async def health(request: Request) -> Response:
        status = "ok" if engine.is_open else "closed"
        return JSONResponse({"status": status, **engine.stats()}, 200 if engine.is_open else 503)

    routes = [
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/models", models),
        Route("/health", health),
    ]
    return Starlette(
        routes=routes, exception_handlers={GenerationError: _error_response, HTTPException: _http_error_response}
    )


def serve(engine: Engine, model_name: str, host: str = "127.0.0.1", port: int = 8000, wait: float | None = 0.0) -> None:
    """Serves an engine until the process is interrupted. Accepted requests are answered first.

    Requests need the key in the environment variable `KERAS_TRANSFORMER_API_KEY`, if it is set. Slow connections are closed.

    Args:
        engine, model_name, wait: as in `application`.
        host: str. Address to bind. Default "127.0.0.1": requests must name this machine.
        port: int. Default 8000.
    """
    guard = Guard(application(engine, model_name, wait), Access.of_address(host), _MAX_BODY_BYTES)
    run_server(guard, host, port)


class _EngineResponse(Response):
    """Base of responses that cancel their requests when the client disconnects."""

    def __init__(
        self,
        content: CompletionResponse,
        requests: list[EngineRequest],
        in_thread: Callable[..., Any],
        with_usage: bool,
    ) -> None:
        self.status_code, self.background = 200, None
        self.content, self.requests, self.in_thread, self.with_usage = content, requests, in_thread, with_usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, receive, group.cancel_scope)
                await self._respond(scope, receive, send)
                group.cancel_scope.cancel()
        finally:
            for request in self.requests:
                request.cancel()

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class _FullResponse(_EngineResponse):
    """A JSON response with all choices."""

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            results = [await self.in_thread(request.result) for request in self.requests]
            response = JSONResponse(self.content.complete(results))
        except GenerationError as error:
            response = _error_response(None, error)
        await response(scope, receive, send)


class _StreamingResponse(_EngineResponse):
    """Server-sent events with the chunks of all choices."""

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        writer, reader = anyio.create_memory_object_stream[object](0)
        async with anyio.create_task_group() as group, reader:
            for index, request in enumerate(self.requests):
                group.start_soon(self._pump, index, request, writer.clone())
            writer.close()
            async for event in reader:
                await self._event(send, json.dumps(event))
        if self.with_usage:
            await self._event(send, json.dumps(self.content.usage()))
        await self._event(send, "[DONE]")
        await send({"type": "http.response.body", "body": b""})

    async def _pump(self, index: int, request: EngineRequest, writer: MemoryObjectSendStream[object]) -> None:
        """Writes the chunks of one request and its last chunk."""
        async with writer:
            pieces = request.stream()
            try:
                while (piece := await self.in_thread(next, pieces, _END)) is not _END:
                    await writer.send(self.content.chunk(index, piece))
                await writer.send(self.content.chunk(index, None))
            except GenerationError as error:
                await writer.send(_error(error)[1])

    async def _event(self, send: Send, data: object) -> None:
        await send({"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": True})


def _submit(engine: Engine, completion: Completion, wait: float | None) -> list[EngineRequest]:
    """Submits a request for each choice. If one fails, all are cancelled."""
    if len(completion.prompts) * completion.num_choices > _MAX_CHOICES:
        raise InvalidBodyError(f"The number of prompts times 'n' must be at most {_MAX_CHOICES}.", "n")
    as_text = None if engine.tokenizer is None else True
    requests: list[EngineRequest] = []
    with on_failure(_cancel, requests):
        for prompt in completion.prompts:
            requests += engine.submit_samples(
                prompt, completion.num_choices, wait=wait, as_text=as_text, **completion.options
            )
    return requests


def _cancel(requests: list[EngineRequest]) -> None:
    for request in requests:
        request.cancel()


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise HTTPException(413, f"The body is larger than {_MAX_BODY_BYTES} bytes.")
    return body


def _error(error: Exception) -> tuple[int, dict]:
    """Returns status and JSON content of an error."""
    status, kind, code = next(
        (found for each, found in _ERROR_CODES.items() if isinstance(error, each)), (None, None, None)
    )
    if status is None:
        failed = error.__cause__ is not None
        status, kind, code = (500, "server_error", "failed") if failed else (400, "invalid_request_error", "invalid")
    parameter = getattr(error, "parameter", None)
    return status, {"error": {"message": str(error), "type": kind, "param": parameter, "code": code}}


def _error_response(request: Request | None, error: Exception) -> JSONResponse:
    status, content = _error(error)
    return JSONResponse(content, status, headers={"Retry-After": "1"} if status == 429 else None)


def _http_error_response(request: Request | None, error: Any) -> JSONResponse:
    code = error_code(error.status_code)
    content = {"message": error.detail, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": content}, error.status_code, headers=error.headers)
