"""The completions API of OpenAI: parsing of request bodies and JSON of responses."""

from __future__ import annotations

import json
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from keras_transformer.generation.errors import GenerationError
from keras_transformer.generation.samplers import Greedy, Random

if TYPE_CHECKING:
    from keras_transformer.generation.engine.request import Request
    from keras_transformer.generation.protocols import Sampler


class InvalidBodyError(GenerationError):
    """An invalid request body.

    Args:
        message: str.
        parameter: str or None. Name of the invalid parameter.
    """

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_is_whole, value))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(each, str) for each in value)


# Default, validator and description of each parameter.
_PARAMETERS = {
    "model": (None, lambda value: isinstance(value, str), "the name of a model"),
    "prompt": (
        None,
        lambda value: isinstance(value, str) or _is_ids(value) or _is_texts(value) or _is_lists(value),
        "text, token ids, or a list of either",
    ),
    "max_tokens": (16, lambda value: _is_whole(value) and value >= 1, "a positive integer"),
    "temperature": (1.0, lambda value: _is_number(value) and 0 <= value <= 100, "a number from 0 (greedy) to 100"),
    "top_p": (1.0, lambda value: _is_number(value) and 0 < value <= 1, "a number above 0, at most 1"),
    "top_k": (None, lambda value: _is_whole(value) and value >= 1, "a positive integer"),
    "min_p": (None, lambda value: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1"),
    "repetition_penalty": (1.0, lambda value: _is_number(value) and value > 0, "a number above 0"),
    "n": (1, lambda value: _is_whole(value) and 1 <= value <= 128, "an integer from 1 to 128"),
    "seed": (None, lambda value: _is_whole(value) and value >= 0, "an integer from 0"),
    "stop": (
        None,
        lambda value: (
            (isinstance(value, str) and bool(value)) or (_is_texts(value) and len(value) <= 16 and all(value))
        ),
        "text, or a list of at most 16 texts",
    ),
    "stream": (False, lambda value: isinstance(value, bool), "true or false"),
    "stream_options": (None, lambda value: isinstance(value, dict), "an object"),
    "user": (None, lambda value: isinstance(value, str), "text"),
}
# Unsupported parameters, which are accepted with these neutral values.
_NEUTRAL = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (0, False),
    "presence_penalty": (0,),
    "suffix": ("",),
}


def _is_lists(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_is_ids, value))


class Completion(NamedTuple):
    """A parsed completion request.

    Attributes:
        model: str or None. Requested model name.
        prompts: list of str, or of lists of int.
        num_choices: int. Number of completions for each prompt.
        options: dict of arguments of `Engine.submit_samples`.
        stream: bool. Whether the response is a stream.
        with_usage: bool. Whether a stream ends with the token usage.
    """

    model: str | None
    prompts: list[Any]
    num_choices: int
    options: dict[str, Any]
    stream: bool
    with_usage: bool


def read_body(body: bytes) -> Completion:
    """Parses a JSON body into a `Completion`.

    Raises:
        InvalidBodyError: invalid JSON, or an unknown, unsupported or invalid parameter.
    """
    try:
        given = json.loads(body)
    except ValueError as error:
        raise InvalidBodyError(f"The body is not JSON: {error}.") from None
    if not isinstance(given, dict):
        raise InvalidBodyError("The body must be a JSON object.")
    values = _values(given)
    prompt = values["prompt"]
    is_single = isinstance(prompt, str) or _is_ids(prompt)
    options = {
        "max_new_tokens": values["max_tokens"],
        "sampler": _sampler(values),
        **{name: values[name] for name in ("stop", "seed", "repetition_penalty")},
    }
    with_usage = bool((values["stream_options"] or {}).get("include_usage"))
    prompts = [prompt] if is_single else list(prompt)
    return Completion(values["model"], prompts, values["n"], options, values["stream"], with_usage)


def _values(given: dict[str, Any]) -> dict[str, Any]:
    """Returns the value or the default of every parameter, after validation."""
    for name, value in given.items():
        if name in _NEUTRAL:
            if value is not None and value not in _NEUTRAL[name]:
                raise InvalidBodyError(f"{name!r} is not supported.", name)
        elif name not in _PARAMETERS:
            raise InvalidBodyError(f"Unknown parameter {name!r}. Known: {', '.join(_PARAMETERS)}.", name)
    values = {}
    for name, (default, is_valid, words) in _PARAMETERS.items():
        value = given.get(name)
        if value is not None and not is_valid(value):
            raise InvalidBodyError(f"{name!r} must be {words}. Received: {json.dumps(value):.80}", name)
        values[name] = default if value is None else value
    if values["prompt"] is None:
        raise InvalidBodyError("'prompt' is missing.", "prompt")
    return values


def _sampler(values: dict[str, Any]) -> Sampler:
    if values["temperature"] == 0:
        return Greedy()
    top_p = None if values["top_p"] == 1 else values["top_p"]
    return Random(values["temperature"], top_k=values["top_k"], top_p=top_p, min_p=values["min_p"])


class CompletionResponse:
    """The JSON of the response to one completion request.

    Args:
        model: str. Name of the model.
        requests: list of `Request`, one for each choice.
        num_prompts: int.
        has_text: bool. Whether results are text; otherwise choices have "token_ids".
    """

    def __init__(self, model: str, requests: list[Request], num_prompts: int, has_text: bool) -> None:
        self._header = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._requests = requests
        self._num_prompts = num_prompts
        self._has_text = has_text

    def complete(self, results: list[Any]) -> dict[str, Any]:
        """Returns the complete response, from the results of all choices."""
        choices = [self._choice(index, result, self._finish_reason(index)) for index, result in enumerate(results)]
        return {**self._header, "choices": choices, "usage": self._usage()}

    def chunk(self, index: int, piece: Any) -> dict[str, Any]:
        """Returns a chunk of a stream with a piece of one choice, str or int; None for its end."""
        if piece is None:
            choice = self._choice(index, "" if self._has_text else [], self._finish_reason(index))
        else:
            choice = self._choice(index, piece if self._has_text else [piece], None)
        return {**self._header, "choices": [choice]}

    def usage(self) -> dict[str, Any]:
        """Returns the last chunk of a stream, with the token usage."""
        return {**self._header, "choices": [], "usage": self._usage()}

    def _choice(self, index: int, result: Any, finish_reason: str | None) -> dict[str, Any]:
        content = {"text": result} if self._has_text else {"text": "", "token_ids": result}
        return {"index": index, **content, "logprobs": None, "finish_reason": finish_reason}

    def _finish_reason(self, index: int) -> str | None:
        return self._requests[index].finish_reason

    def _usage(self) -> dict[str, int]:
        num_choices = len(self._requests) // self._num_prompts
        prompt = sum(len(request.prompt) for request in self._requests[::num_choices])
        completion = sum(len(request.new_tokens) for request in self._requests)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
