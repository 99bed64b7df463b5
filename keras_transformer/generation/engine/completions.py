"""OpenAI-style completions: what a request's JSON asks of an engine, and the JSON that answers."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any, NamedTuple

from keras_transformer.generation.errors import GenerationError
from keras_transformer.generation.samplers import Greedy, Random


class InvalidBodyError(GenerationError):
    """A body that asks for what there is not; `parameter` names where."""

    def __init__(self, message, parameter=None) -> None:
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


# Each parameter: its default, what it must be, and that in words.
_PARAMETERS = {
    "model": (None, lambda value: isinstance(value, str), "the name of a model"),
    "prompt": (
        None,
        lambda value: isinstance(value, str) or _is_ids(value) or _is_texts(value) or _is_lists(value),
        "text, token ids, or a list of either",
    ),
    "max_tokens": (16, lambda value: _is_whole(value) and value >= 1, "a positive integer"),
    "temperature": (1.0, lambda value: _is_number(value) and 0 <= value <= 100, "a number from 0 (greedy)"),
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
# Taken where it asks for nothing.
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
    """What a body asks for.

    Attributes:
        model: str or None.
        prompts: list of str, or of lists of int.
        num_choices: int. Texts for each prompt.
        options: dict of arguments of `Engine.submit_samples`.
        stream: bool.
        with_usage: bool. Whether a stream ends with the tokens used.
    """

    model: str | None
    prompts: list[Any]
    num_choices: int
    options: dict[str, Any]
    stream: bool
    with_usage: bool


def read_body(body: bytes) -> Any:
    """A body, bytes of JSON, as a `Completion`.

    Raises:
        InvalidBodyError: names the parameter.
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


def _sampler(values: Any):
    if values["temperature"] == 0:
        return Greedy()
    top_p = None if values["top_p"] == 1 else values["top_p"]
    return Random(values["temperature"], top_k=values["top_k"], top_p=top_p, min_p=values["min_p"])


class Answer:
    """The JSON of one completion.

    Args:
        model: str.
        requests: list of `Request`, one for each choice.
        num_prompts: int.
        has_text: bool. Whether results are text; otherwise choices have "token_ids".
    """

    def __init__(self, model: Any, requests, num_prompts, has_text) -> None:
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._requests = requests
        self._num_prompts = num_prompts
        self._has_text = has_text

    def whole(self, results: Any):
        """All choices."""
        choices = [self._choice(index, result, self._finish(index)) for index, result in enumerate(results)]
        return {**self._head, "choices": choices, "usage": self._usage()}

    def piece(self, index: Any, piece: str):
        """A piece of one choice as it comes; None for its end."""
        if piece is None:
            choice = self._choice(index, "" if self._has_text else [], self._finish(index))
        else:
            choice = self._choice(index, piece if self._has_text else [piece], None)
        return {**self._head, "choices": [choice]}

    def usage(self):
        """The end of a stream that asks for the tokens used."""
        return {**self._head, "choices": [], "usage": self._usage()}

    def _choice(self, index: Any, result: Any, finish: Any):
        content = {"text": result} if self._has_text else {"text": "", "token_ids": result}
        return {"index": index, **content, "logprobs": None, "finish_reason": finish}

    def _finish(self, index: Any):
        return self._requests[index].finish_reason

    def _usage(self):
        each = len(self._requests) // self._num_prompts
        read = sum(len(request.prompt) for request in self._requests[::each])
        written = sum(len(request.new_tokens) for request in self._requests)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
