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
from keras_transformer.generation.engine.tool_calls import (
    WORDS,
    call_of,
    call_schema,
    is_choice,
    is_tools,
    with_arguments,
)
from keras_transformer.generation.errors import ChatMessageError
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.generation.engine.request import Request, TokenLogprobs
    from keras_transformer.generation.protocols import TextTokenizer
    from keras_transformer.generation.sampling_defaults import SamplingDefaults

_PARAMETERS: Parameters = {
    **SHARED,
    "messages": (None, lambda value: isinstance(value, list), "a list of messages"),
    "tools": (
        None,
        is_tools,
        "a list of functions: {'type': 'function', 'function': {'name': ..., 'parameters': ...}}",
    ),
    "tool_choice": (None, is_choice, WORDS),
    "logprobs": (False, lambda value: isinstance(value, bool), "true or false"),
    "top_logprobs": (
        None,
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 20,
        "an integer from 0 to 20",
    ),
    # Without a limit, that of `Generator.generate`.
    "max_tokens": (None, SHARED["max_tokens"][1], SHARED["max_tokens"][2]),
    "max_completion_tokens": (None, SHARED["max_tokens"][1], SHARED["max_tokens"][2]),
}
# Unsupported parameters, which are accepted with these neutral values.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "metadata": ({},),
    "parallel_tool_calls": (True, False),
    "store": (False,),
}
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def read_chat_body(
    body: bytes, chat_prompt: Callable[..., list[int]], defaults: SamplingDefaults | None = None
) -> Completion:
    """Parses a JSON body into a `Completion` of one prompt.

    Args:
        body: bytes.
        chat_prompt: function of messages and `tools` to token ids, as `Engine.chat_prompt`.
        defaults: `SamplingDefaults` of the model, or None.

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
    if values["top_logprobs"] is not None and not values["logprobs"]:
        raise InvalidBodyError("'top_logprobs' needs 'logprobs': true.", "top_logprobs")
    values["top_logprobs"] = (values["top_logprobs"] or 0) if values["logprobs"] else None
    is_call = _require_call(values)
    tools = None if values["tool_choice"] == "none" else values["tools"]
    try:
        prompt = chat_prompt([_with_text(each) for each in values["messages"]], tools=tools)
    except ChatMessageError as error:
        raise InvalidBodyError(str(error), "messages") from None
    return completion_of(values, [prompt], defaults)._replace(is_call=is_call)


def _require_call(values: JsonObject) -> bool:
    """Makes the answer the JSON of a call, if `tool_choice` requires one; returns whether it does."""
    try:
        schema = call_schema(values["tools"], values["tool_choice"])
    except ValueError as error:
        raise InvalidBodyError(str(error), "tool_choice") from None
    if schema is None:
        return False
    if (values["response_format"] or {"type": "text"}).get("type") != "text":
        raise InvalidBodyError("An answer cannot be a call and have a 'response_format'.", "tool_choice")
    values["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    values["compact"] = True
    return True


def _with_text(message: Any) -> Any:
    """A message of a known role whose content is text, where it is a list of parts of text.

    Templates know the role "developer" by its former name.
    """
    role = message.get("role") if isinstance(message, dict) else None
    if isinstance(role, str) and role not in ROLES:
        raise InvalidBodyError(f"There is no role {role!r:.80}. Valid: {', '.join(ROLES)}.", "messages")
    message = {**message, "role": "system"} if role == "developer" else message
    if isinstance(message, dict) and "tool_calls" in message:
        message = {**message, "tool_calls": with_arguments(message["tool_calls"])}
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

    def __init__(self, model: str, requests: list[Request], num_prompts: int, tokenizer: TextTokenizer | None) -> None:
        super().__init__(model, requests, num_prompts, tokenizer)
        self._begun: set[int] = set()

    def chunk(self, index: int, piece: str | int | None) -> JsonObject:
        start = {} if index in self._begun else {"role": "assistant"}
        self._begun.add(index)
        delta = start if piece is None else {**start, "content": piece}
        reason = self._finish_reason(index) if piece is None else None
        logprobs = self._logprobs(index, self._requests[index].num_taken)
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {**self._header, "object": f"{self.kind}.chunk", "choices": [choice]}

    def usage(self) -> JsonObject:
        return {**super().usage(), "object": f"{self.kind}.chunk"}

    def _choice(self, index: int, result: object, finish_reason: str | None) -> JsonObject:
        message = {"role": "assistant", "content": result}
        return {"index": index, "message": message, "logprobs": None, "finish_reason": finish_reason}

    def _logprobs_of(self, found: list[TokenLogprobs]) -> JsonObject:
        content = [
            {**self._entry(each.token, each.logprob), "top_logprobs": [self._entry(*one) for one in each.top]}
            for each in found
        ]
        return {"content": content, "refusal": None}

    def _entry(self, token: int, logprob: float) -> JsonObject:
        text = self._text(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


class ToolCallResponse(ChatResponse):
    """The JSON of the response to a request whose answer is a call of a tool. Arguments as of `CompletionResponse`."""

    def __init__(self, model: str, requests: list[Request], num_prompts: int, tokenizer: TextTokenizer | None) -> None:
        super().__init__(model, requests, num_prompts, tokenizer)
        self._texts = [""] * len(requests)

    def chunk(self, index: int, piece: str | int | None) -> JsonObject:
        if piece is not None:
            self._texts[index] += str(piece)
            return super().chunk(index, "")
        found = super().chunk(index, None)
        (choice,) = found["choices"]
        call = call_of(self._texts[index])
        if call is None:
            choice["delta"] = {**choice["delta"], "content": self._texts[index]}
        else:
            choice["delta"] = {**choice["delta"], "tool_calls": [{"index": 0, **call}]}
            choice["finish_reason"] = "tool_calls"
        return found

    def _choice(self, index: int, result: object, finish_reason: str | None) -> JsonObject:
        choice = super()._choice(index, result, finish_reason)
        call = call_of(str(result))
        if call is None:
            return choice
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return choice | {"message": message, "finish_reason": "tool_calls"}
