"""The completions API of OpenAI: parsing of request bodies and JSON of responses."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from keras_transformer.generation.engine.response_format import read_response_format
from keras_transformer.generation.errors import GenerationError, GrammarError
from keras_transformer.generation.samplers import MIN_TEMPERATURE, Greedy, Random
from keras_transformer.utils.http.json_bodies import InvalidJsonError, parse_json
from keras_transformer.utils.types import JsonObject

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


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_is_whole, value))


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(each, str) for each in value)


# Larger integers fit no tensor, and penalties beyond these make infinite logits in float32.
_MAX_COUNT, _MAX_SEED = 2**31 - 1, 2**63 - 1
_MIN_PENALTY, _MAX_PENALTY = 1e-2, 100


def _is_count(value: Any) -> bool:
    return _is_whole(value) and 1 <= value <= _MAX_COUNT


def _is_temperature(value: Any) -> bool:
    return _is_number(value) and (value == 0 or MIN_TEMPERATURE <= value <= 100)


Parameters: TypeAlias = "Mapping[str, tuple[object, Callable[[Any], bool], str]]"
# Default, validator and description of each parameter that every kind of completion has.
SHARED: Parameters = {
    "model": (None, lambda value: isinstance(value, str), "the name of a model"),
    "max_tokens": (16, _is_count, "a positive integer below 2^31"),
    "temperature": (1.0, _is_temperature, f"0 (greedy), or a number from {MIN_TEMPERATURE} to 100"),
    "top_p": (1.0, lambda value: _is_number(value) and 0 < value <= 1, "a number above 0, at most 1"),
    "top_k": (None, _is_count, "a positive integer below 2^31"),
    "min_p": (None, lambda value: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1"),
    "repetition_penalty": (
        1.0,
        lambda value: _is_number(value) and _MIN_PENALTY <= value <= _MAX_PENALTY,
        f"a number from {_MIN_PENALTY} to {_MAX_PENALTY}",
    ),
    "n": (1, lambda value: _is_whole(value) and 1 <= value <= 128, "an integer from 1 to 128"),
    "response_format": (None, lambda value: isinstance(value, dict), "an object"),
    "seed": (None, lambda value: _is_whole(value) and 0 <= value <= _MAX_SEED, "an integer from 0, below 2^63"),
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
    "priority": (0, lambda value: _is_whole(value) and abs(value) <= _MAX_COUNT, "an integer"),
}
_PARAMETERS: Parameters = {
    "prompt": (
        None,
        lambda value: isinstance(value, str) or _is_ids(value) or _is_texts(value) or _is_lists(value),
        "text, token ids, or a list of either",
    ),
    **SHARED,
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


def _is_lists(value: object) -> bool:
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
    given = read_object(body)
    values = read_values(given, _PARAMETERS, _NEUTRAL)
    if values["prompt"] is None:
        raise InvalidBodyError("'prompt' is missing.", "prompt")
    prompt = values["prompt"]
    is_single = isinstance(prompt, str) or _is_ids(prompt)
    return completion_of(values, [prompt] if is_single else list(prompt))


def read_object(body: bytes) -> JsonObject:
    """Parses a JSON object.

    Raises:
        InvalidBodyError: the body is something else.
    """
    try:
        given = parse_json(body)
    except InvalidJsonError as error:
        raise InvalidBodyError(f"The body is not JSON: {error}.") from None
    if not isinstance(given, dict):
        raise InvalidBodyError("The body must be a JSON object.")
    return given


def completion_of(values: Mapping[str, Any], prompts: list[Any]) -> Completion:
    """The `Completion` of validated parameters.

    Raises:
        InvalidBodyError: an invalid or unsupported response format.
    """
    try:
        grammar = read_response_format(values["response_format"])
    except GrammarError as error:
        raise InvalidBodyError(str(error), "response_format") from None
    options = {
        "max_new_tokens": values["max_tokens"],
        "sampler": _sampler(values),
        "grammar": grammar,
        **{name: values[name] for name in ("stop", "seed", "repetition_penalty", "priority", "user")},
    }
    with_usage = bool((values["stream_options"] or {}).get("include_usage"))
    return Completion(values["model"], prompts, values["n"], options, values["stream"], with_usage)


def read_values(
    given: Mapping[str, object], parameters: Parameters, neutral: Mapping[str, Collection[object]]
) -> JsonObject:
    """Returns the value or the default of every parameter, after validation.

    Args:
        given: dict of name to value.
        parameters: dict of name to default, validator and description.
        neutral: dict of the name of an unsupported parameter to the values that change nothing.

    Raises:
        InvalidBodyError: names the parameter.
    """
    for name, value in given.items():
        if name in neutral:
            if value is not None and value not in neutral[name]:
                raise InvalidBodyError(f"{name!r} is not supported.", name)
        elif name not in parameters:
            raise InvalidBodyError(f"Unknown parameter {name!r}. Known: {', '.join(parameters)}.", name)
    values = {}
    for name, (default, is_valid, words) in parameters.items():
        value = given.get(name)
        if value is not None and not is_valid(value):
            raise InvalidBodyError(f"{name!r} must be {words}. Received: {json.dumps(value):.80}", name)
        values[name] = default if value is None else value
    return values


def _sampler(values: Mapping[str, Any]) -> Sampler:
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

    kind, prefix = "text_completion", "cmpl"

    def __init__(self, model: str, requests: list[Request], num_prompts: int, has_text: bool) -> None:
        self._header = {
            "id": f"{self.prefix}-{uuid.uuid4().hex}",
            "object": self.kind,
            "created": int(time.time()),
            "model": model,
        }
        self._requests = requests
        self._num_prompts = num_prompts
        self._has_text = has_text

    def complete(self, results: list[str | list[int]]) -> JsonObject:
        """Returns the complete response, from the results of all choices."""
        choices = [self._choice(index, result, self._finish_reason(index)) for index, result in enumerate(results)]
        return {**self._header, "choices": choices, "usage": self._usage()}

    def chunk(self, index: int, piece: str | int | None) -> JsonObject:
        """Returns a chunk of a stream with a piece of one choice, str or int; None for its end."""
        if piece is None:
            choice = self._choice(index, "" if self._has_text else [], self._finish_reason(index))
        else:
            choice = self._choice(index, piece if self._has_text else [piece], None)
        return {**self._header, "choices": [choice]}

    def usage(self) -> JsonObject:
        """Returns the last chunk of a stream, with the token usage."""
        return {**self._header, "choices": [], "usage": self._usage()}

    def _choice(self, index: int, result: object, finish_reason: str | None) -> JsonObject:
        content = {"text": result} if self._has_text else {"text": "", "token_ids": result}
        return {"index": index, **content, "logprobs": None, "finish_reason": finish_reason}

    def _finish_reason(self, index: int) -> str | None:
        return self._requests[index].finish_reason

    def _usage(self) -> dict[str, int]:
        num_choices = len(self._requests) // self._num_prompts
        prompt = sum(len(request.prompt) for request in self._requests[::num_choices])
        completion = sum(len(request.new_tokens) for request in self._requests)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
