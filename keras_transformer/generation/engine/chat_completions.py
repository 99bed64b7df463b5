"""The chat completions API of OpenAI: parsing of request bodies and JSON of responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras_transformer.generation.engine.completions import (
    SHARED,
    Completion,
    CompletionResponse,
    InvalidBodyError,
    Parameters,
    completion_of,
    read_object,
    read_values,
)
from keras_transformer.generation.errors import ChatMessageError
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.generation.engine.request import Request

_PARAMETERS: Parameters = {
    **SHARED,
    "messages": (None, lambda value: isinstance(value, list), "a list of messages"),
    "tools": (None, lambda value: isinstance(value, list), "a list of tools"),
    # Without a limit, that of `Generator.generate`.
    "max_tokens": (None, SHARED["max_tokens"][1], SHARED["max_tokens"][2]),
    "max_completion_tokens": (None, SHARED["max_tokens"][1], SHARED["max_tokens"][2]),
}
# Unsupported parameters, which are accepted with these neutral values.
_NEUTRAL = {
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "metadata": ({},),
    "parallel_tool_calls": (True, False),
    "presence_penalty": (0,),
    "store": (False,),
    "tool_choice": ("auto",),
    "top_logprobs": (0,),
}


def read_chat_body(body: bytes, chat_prompt: Callable[..., list[int]]) -> Completion:
    """Parses a JSON body into a `Completion` of one prompt.

    Args:
        body: bytes.
        chat_prompt: function of messages and `tools` to token ids, as `Engine.chat_prompt`.

    Raises:
        InvalidBodyError: invalid JSON, an unknown, unsupported or invalid parameter, or invalid messages.
        ChatTemplateError: the model has no chat template, or it refuses the messages.
    """
    given = read_object(body)
    values = read_values(given, _PARAMETERS, _NEUTRAL)
    if values["messages"] is None:
        raise InvalidBodyError("'messages' is missing.", "messages")
    if values["max_completion_tokens"] is not None:
        values["max_tokens"] = values["max_completion_tokens"]
    try:
        prompt = chat_prompt([_with_text(each) for each in values["messages"]], tools=values["tools"])
    except ChatMessageError as error:
        raise InvalidBodyError(str(error), "messages") from None
    return completion_of(values, [prompt])


def _with_text(message: Any) -> Any:
    """A message whose content is text, where it is a list of parts of text."""
    parts = message.get("content") if isinstance(message, dict) else None
    if not isinstance(parts, list):
        return message
    found = [each.get("text") for each in parts if isinstance(each, dict) and each.get("type") == "text"]
    texts = [each for each in found if isinstance(each, str)]
    if len(texts) < len(parts):
        raise InvalidBodyError("The parts of a message must be text.", "messages")
    return {**message, "content": "".join(texts)}


class ChatResponse(CompletionResponse):
    """The JSON of the response to one request of a chat. Arguments as of `CompletionResponse`."""

    kind, prefix = "chat.completion", "chatcmpl"

    def __init__(self, model: str, requests: list[Request], num_prompts: int, has_text: bool) -> None:
        super().__init__(model, requests, num_prompts, has_text)
        self._begun: set[int] = set()

    def chunk(self, index: int, piece: str | int | None) -> JsonObject:
        start = {} if index in self._begun else {"role": "assistant"}
        self._begun.add(index)
        delta = start if piece is None else {**start, "content": piece}
        reason = self._finish_reason(index) if piece is None else None
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._header, "object": f"{self.kind}.chunk", "choices": [choice]}

    def usage(self) -> JsonObject:
        return {**super().usage(), "object": f"{self.kind}.chunk"}

    def _choice(self, index: int, result: object, finish_reason: str | None) -> JsonObject:
        message = {"role": "assistant", "content": result}
        return {"index": index, "message": message, "logprobs": None, "finish_reason": finish_reason}
