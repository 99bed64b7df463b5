"""The Responses API of OpenAI, `POST /v1/responses`, by way of chat completions."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from starlette.responses import Response

from keras_transformer.export.serving.requests import to_json
from keras_transformer.export.serving.responses import Streamed
from keras_transformer.generation.engine.completions import InvalidBodyError, Parameters, read_object, read_values
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from starlette.requests import Request

    from keras_transformer.export.serving.text_routes import TextRoutes

RESPONSES = "/v1/responses"
_PREFIX, _SUFFIX = b"data: ", b"\n\n"
_ANY = (None, lambda value: True, "")
# Those of chat completions are checked there.
_PARAMETERS: Parameters = {
    "input": (None, lambda value: isinstance(value, (str, list)), "text, or a list of messages"),
    "instructions": (None, lambda value: isinstance(value, str), "text"),
    "text": (None, lambda value: isinstance(value, dict), "an object with 'format'"),
    "tools": (None, lambda value: isinstance(value, list), "a list of functions"),
    "stream": (False, lambda value: isinstance(value, bool), "true or false"),
    **dict.fromkeys(("model", "max_output_tokens", "temperature", "top_p", "tool_choice", "user", "seed"), _ANY),
}
# Unsupported parameters, which are accepted with these neutral values.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "include": ([],),
    "metadata": ({},),
    "parallel_tool_calls": (True, False),
    "previous_response_id": (),
    "reasoning": ({},),
    "store": (True, False),
    "truncation": ("disabled",),
    "background": (False,),
}
# The names of parameters that chat completions call otherwise.
_SAME = {"model": "model", "temperature": "temperature", "top_p": "top_p", "user": "user", "seed": "seed"}
_NAMES = {**_SAME, "max_output_tokens": "max_completion_tokens", "stream": "stream"}


def chat_body(body: bytes) -> JsonObject:
    """The body of a chat completion that a body of the Responses API asks for.

    Args:
        body: bytes.

    Raises:
        InvalidBodyError: it is not such a body; names the parameter.

    Example:

    >>> chat_body(b'{"input": "Hello", "instructions": "Be brief."}')["messages"]
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hello'}]
    """
    values = read_values(read_object(body), _PARAMETERS, _NEUTRAL)
    if values["input"] is None:
        raise InvalidBodyError("'input' is missing.", "input")
    chat = {new: values[name] for name, new in _NAMES.items() if values[name] is not None}
    given = [{"role": "user", "content": values["input"]}] if isinstance(values["input"], str) else values["input"]
    system = [] if values["instructions"] is None else [{"role": "system", "content": values["instructions"]}]
    chat["messages"] = [*system, *map(_message, given)]
    if values["tools"]:
        chat["tools"] = [_tool(each) for each in values["tools"]]
    if values["tool_choice"] is not None:
        choice = values["tool_choice"]
        is_named = isinstance(choice, dict) and "function" not in choice
        chat["tool_choice"] = _tool(choice) if is_named else choice
    format = (values["text"] or {}).get("format")
    if isinstance(format, dict):
        is_schema = format.get("type") == "json_schema"
        chat["response_format"] = {"type": "json_schema", "json_schema": format} if is_schema else format
    if chat["stream"]:
        chat["stream_options"] = {"include_usage": True}
    return chat


def _message(item: object) -> JsonObject:
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        raise InvalidBodyError("An item of 'input' must be a message with 'role' and 'content'.", "input")
    content = item.get("content")
    if isinstance(content, list):
        texts = [each.get("text") if isinstance(each, dict) else None for each in content]
        if not all(isinstance(each, str) for each in texts):
            raise InvalidBodyError("The parts of a message must be text.", "input")
        content = "".join(map(str, texts))
    return {"role": item.get("role"), "content": content}


def _tool(tool: object) -> object:
    """A function in the form of chat completions."""
    if not isinstance(tool, dict) or "function" in tool:
        return tool
    return {"type": tool.get("type"), "function": {name: tool[name] for name in tool if name not in ("type", "strict")}}


class ResponseRoutes:
    """`POST /v1/responses`, whole or as a stream of events. Nothing is stored.

    Args:
        texts: `TextRoutes`.
    """

    def __init__(self, texts: TextRoutes) -> None:
        self._texts = texts

    async def respond(self, request: Request) -> Response:
        """The response to a request."""
        body = await request.body()
        chat = chat_body(body)
        record = _Record(json.loads(body))
        found = await self._texts.chat_with(request, json.dumps(chat).encode())
        if isinstance(found, Streamed):
            return found.with_events(_streamed(found.events, record))
        if found.status_code != 200:
            return found
        return Response(to_json(record.complete(json.loads(bytes(found.body)))), media_type="application/json")


class _Record:
    """The object of one response.

    Args:
        asked: dict: the body of the request.
    """

    def __init__(self, asked: JsonObject) -> None:
        self.text = ""
        self.usage: JsonObject | None = None
        self.reason: str | None = None
        self.calls: list[JsonObject] = []
        self.message_id = f"msg_{uuid.uuid4().hex}"
        self._head: JsonObject = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "error": None,
            "metadata": {},
            "parallel_tool_calls": False,
            "tools": asked.get("tools") or [],
            "tool_choice": asked.get("tool_choice") or "auto",
        }
        names = ("model", "instructions", "max_output_tokens", "temperature", "top_p")
        self._head |= {name: asked.get(name) for name in names}

    def complete(self, found: JsonObject) -> JsonObject:
        """The object of the response, from a whole chat completion."""
        (choice,) = found["choices"]
        self.text, self.calls = choice["message"]["content"] or "", choice["message"].get("tool_calls") or []
        self.reason, self.usage = choice["finish_reason"], found["usage"]
        self._head["model"] = found["model"]
        return self.to_dict()

    def read(self, chunk: JsonObject) -> str:
        """Takes in a chunk of a chat completion; returns its text."""
        self._head["model"], self.usage = chunk["model"], chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            self.reason = choice["finish_reason"] or self.reason
            self.calls += choice["delta"].get("tool_calls") or []
            piece = choice["delta"].get("content") or ""
            self.text += piece
            return piece
        return ""

    def part(self) -> JsonObject:
        """The text as a part of a message."""
        return {"type": "output_text", "text": self.text, "annotations": []}

    def items(self) -> list[JsonObject]:
        """What was written: calls of functions, or a message."""
        status = "incomplete" if self.reason == "length" else "completed"
        if self.calls:
            return [
                {"type": "function_call", "id": f"fc_{each['id']}", "call_id": each["id"], "status": status}
                | each["function"]
                for each in self.calls
            ]
        head = {"type": "message", "id": self.message_id, "role": "assistant", "status": status}
        return [{**head, "content": [self.part()]}]

    def to_dict(self, status: str | None = None) -> JsonObject:
        """The object of the response; with a status, that of one that is not complete."""
        is_cut = self.reason == "length"
        usage = self.usage or {}
        figures = {
            "input_tokens": usage.get("prompt_tokens", 0),
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage.get("completion_tokens", 0),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.get("total_tokens", 0),
        }
        return {
            **self._head,
            "status": status or ("incomplete" if is_cut else "completed"),
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": [] if status else self.items(),
            "usage": None if status else figures,
        }


async def _streamed(events: AsyncGenerator[bytes, None], record: _Record) -> AsyncGenerator[bytes, None]:
    """The events of a response, from those of a chat completion."""
    number = -1

    def event(kind: str, **fields: object) -> bytes:
        nonlocal number
        number += 1
        content = {"type": f"response.{kind}", "sequence_number": number, **fields}
        return f"event: response.{kind}\n".encode() + _PREFIX + json.dumps(content).encode() + _SUFFIX

    where = {"item_id": record.message_id, "output_index": 0, "content_index": 0}
    item = {"type": "message", "id": record.message_id, "role": "assistant", "status": "in_progress", "content": []}
    yield event("created", response=record.to_dict("in_progress"))
    yield event("in_progress", response=record.to_dict("in_progress"))
    has_begun = False
    async for chunk in _chunks(events):
        if "error" in chunk:
            yield event("failed", response=record.to_dict("failed") | {"error": chunk["error"]})
            return
        piece = record.read(chunk)
        if piece and not has_begun:
            has_begun = True
            yield event("output_item.added", output_index=0, item=item)
            yield event("content_part.added", **where, part={"type": "output_text", "text": "", "annotations": []})
        if piece:
            yield event("output_text.delta", **where, delta=piece, logprobs=[])
    if has_begun:
        yield event("output_text.done", **where, text=record.text, logprobs=[])
        yield event("content_part.done", **where, part=record.part())
    for index, each in enumerate(record.items()):
        if not has_begun:
            yield event("output_item.added", output_index=index, item=each)
        yield event("output_item.done", output_index=index, item=each)
    last = record.to_dict()
    yield event(str(last["status"]), response=last)


async def _chunks(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[JsonObject, None]:
    """The chunks of a chat completion in the bytes of its stream."""
    left = b""
    async for piece in events:
        *whole, left = (left + piece).split(_SUFFIX)
        for each in whole:
            data = each.removeprefix(_PREFIX)
            if data and data != b"[DONE]":
                yield json.loads(data)
