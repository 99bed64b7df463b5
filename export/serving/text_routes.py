"""The routes of language models, as in OpenAI's API: completions and chat completions, whole or as streams."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import secrets
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from keras_transformer.export.serving.requests import RequestError
from keras_transformer.export.serving.responses import Streamed, as_response, is_stream, while_connected
from keras_transformer.export.serving.served_model import CHAT, COMPLETIONS, ReplicaDiedError
from keras_transformer.generation.engine.chat_completions import read_chat_body
from keras_transformer.generation.engine.completions import Completion, read_body
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from starlette.requests import Request

    from keras_transformer.export.serving.calls import Calls
    from keras_transformer.export.serving.served_model import ServedModel

# An event of a stream, and what the client keeps of the first one where a stream is restarted.
_PREFIX, _SUFFIX = b"data: ", b"\n\n"
_HEAD = ("id", "created")


class TextRoutes:
    """`POST /v1/completions` and `POST /v1/chat/completions`.

    Args:
        calls: `Calls`.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def completions(self, request: Request) -> Response:
        """The response to a request for completions."""
        body = await request.body()
        # In a thread: the grammar of a schema may take long.
        return await self._respond(request, COMPLETIONS, body, await asyncio.to_thread(read_body, body))

    async def chat(self, request: Request) -> Response:
        """The response to a request for a chat completion. The template is applied by the replica."""
        return await self.chat_with(request, await request.body())

    async def chat_with(self, request: Request, body: bytes) -> Response:
        """The response to a request, for another body of a chat completion than its own."""
        completion = await asyncio.to_thread(read_chat_body, body, lambda messages, tools: [])
        return await self._respond(request, CHAT, body, completion)

    async def _respond(self, request: Request, path: str, body: bytes, completion: Completion) -> Response:
        calls = self._calls
        model = calls.model(completion.model)
        request.state.model = model.name
        if model.reader is not None:
            raise RequestError(400, f"'{model.name}' is no language model: use /v1/models/{model.name}:predict")
        if calls.retries and completion.options["seed"] is None:  # A retry must generate the same text.
            body = json.dumps({**json.loads(body), "seed": secrets.randbelow(2**31)}).encode()
        if completion.stream:
            return await self._stream(model, path, body)
        async with asyncio.timeout(calls.limits.timeout_s):
            return await while_connected(request, calls.retried(model, lambda: _whole(model, path, body)))

    async def _stream(self, model: ServedModel, path: str, body: bytes) -> Response:
        """The response stream, after its first message."""
        events = self._events(model, path, body)
        start = await anext(events)
        if not is_stream(start):
            return as_response(start, b"".join([each async for each in events]))
        return Streamed(start, events)

    async def _events(self, model: ServedModel, path: str, body: bytes) -> AsyncGenerator[Any, None]:
        """The first message of a response, then its pieces, from several replicas if one dies."""
        calls = self._calls
        resumed = ResumableStream() if calls.retries else None
        start: Any = None
        for attempt in range(calls.retries + 1):
            if resumed is not None:
                resumed.restart()
            try:
                async with contextlib.aclosing(model.replicas.complete(body, path)) as messages:
                    async for message in messages:
                        if message["type"] == "http.response.start":
                            if start is None:
                                start = message
                                yield start
                            elif is_stream(message) != is_stream(start):
                                break  # The next replica rejects it for now.
                            continue
                        piece = message.get("body", b"")
                        if piece and resumed is not None and is_stream(start):
                            piece = resumed.filter(piece)
                        if piece:
                            yield piece
                    else:
                        return
            except ReplicaDiedError:
                pass
            await calls.pause(model, attempt)
        if start is None:
            raise ReplicaDiedError()
        failure = {"error": {"message": "every replica for this request has died", "type": "server_error"}}
        yield b"data: " + json.dumps(failure).encode() + b"\n\n"


async def _whole(model: ServedModel, path: str, body: bytes) -> Response:
    start: Any = None
    content = b""
    async with contextlib.aclosing(model.replicas.complete(body, path)) as messages:
        async for message in messages:
            start = start or message
            content += message.get("body", b"")
    return as_response(start, content)


class ResumableStream:
    """Filter that passes each event of a stream of completions once, although the stream may restart.

    The restarted streams must be equal: the same model, prompt and seed. Choices may be in any order.

    Example:

    >>> events = [b'data: {"id": "a", "choices": [{"index": 0, "text": "%s"}]}\\n\\n' % text for text in (b"x", b"y")]
    >>> stream = ResumableStream()
    >>> stream.filter(events[0]) is not None
    True
    >>> stream.restart()
    >>> [stream.filter(event.replace(b'"a"', b'"b"')) for event in events]
    [None, b'data: {"id": "a", "choices": [{"index": 0, "text": "y"}]}\\n\\n']
    """

    def __init__(self) -> None:
        self._sent: collections.Counter[int] = collections.Counter()
        self._behind: collections.Counter[int] = collections.Counter()
        self._head: JsonObject | None = None

    def restart(self) -> None:
        """Declares that the next event is the first of a restarted stream."""
        self._behind = self._sent.copy()

    def filter(self, event: bytes) -> bytes | None:
        """Returns the bytes of an event for the client, or None if the client has the event already."""
        data = event.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        record = None if data == b"[DONE]" else json.loads(data)
        if record is None:
            return event
        choices = record.get("choices")
        if not choices:
            return self._written(record)
        index = choices[0]["index"]
        if self._behind[index]:
            self._behind[index] -= 1
            return None
        self._sent[index] += 1
        return self._written(record)

    def _written(self, record: JsonObject) -> bytes:
        """The event with the id of the first stream."""
        if self._head is None:
            self._head = {name: record[name] for name in _HEAD if name in record}
        known = {name: value for name, value in self._head.items() if name in record}
        return _PREFIX + json.dumps({**record, **known}).encode() + _SUFFIX
