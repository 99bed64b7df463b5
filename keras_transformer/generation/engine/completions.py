"""The completions API of OpenAI: parsing of request bodies and JSON of responses."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from keras_transformer.generation.adjustment import LogitAdjustment
from keras_transformer.generation.engine.response_format import read_response_format
from keras_transformer.generation.errors import GenerationError, GrammarError
from keras_transformer.generation.samplers import MIN_TEMPERATURE, Greedy, Random
from keras_transformer.generation.sampling_defaults import SamplingDefaults
from keras_transformer.utils.http.json_bodies import InvalidJsonError, parse_json
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.generation.engine.request import Request, TokenLogprobs
    from keras_transformer.generation.protocols import Sampler, TextTokenizer


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
    return _is_number(value) and (value == 0 or MIN_TEMPERATURE <= value <= 2)


def _is_penalty(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -2 <= value <= 2


def _is_bias(value: object) -> bool:
    """Whether it is a dict of token ids, which are keys of JSON and therefore text, to numbers."""
    return (
        isinstance(value, dict)
        and len(value) <= 1024
        and all(
            key.isdecimal() and len(key) < 11 and _is_number(each) and -100 <= each <= 100
            for key, each in value.items()
        )
    )


Parameters: TypeAlias = "Mapping[str, tuple[object, Callable[[Any], bool], str]]"
# Default, validator and description of each parameter that every kind of completion has.
SHARED: Parameters = {
    "model": (None, lambda value: isinstance(value, str), "the name of a model"),
    "max_tokens": (16, _is_count, "a positive integer below 2^31"),
    # Without these four, and the repetition penalty, the defaults of the model; see `sampling_of`.
    "temperature": (None, _is_temperature, f"0 (greedy), or a number from {MIN_TEMPERATURE} to 2"),
    "top_p": (None, lambda value: _is_number(value) and 0 < value <= 1, "a number above 0, at most 1"),
    "top_k": (None, _is_count, "a positive integer below 2^31"),
    "min_p": (None, lambda value: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1"),
    "repetition_penalty": (
        None,
        lambda value: _is_number(value) and _MIN_PENALTY <= value <= _MAX_PENALTY,
        f"a number from {_MIN_PENALTY} to {_MAX_PENALTY}",
    ),
    "frequency_penalty": (0.0, _is_penalty, "a number from -2 to 2"),
    "presence_penalty": (0.0, _is_penalty, "a number from -2 to 2"),
    "logit_bias": (None, _is_bias, "an object of at most 1024 token ids, each with a number from -100 to 100"),
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
    "logprobs": (
        None,
        lambda value: isinstance(value, bool) or (_is_whole(value) and 0 <= value <= 5),
        "an integer from 0 to 5",
    ),
    **SHARED,
}
# Unsupported parameters, which are accepted with these neutral values.
_NEUTRAL = {
    "best_of": (1,),
    "echo": (False,),
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
        is_call: bool. Whether the text is the JSON of a call of a tool.
    """

    model: str | None
    prompts: list[Any]
    num_choices: int
    options: dict[str, Any]
    stream: bool
    with_usage: bool
    is_call: bool = False


def read_body(body: bytes, defaults: SamplingDefaults | None = None) -> Completion:
    """Parses a JSON body into a `Completion`.

    Args:
        body: bytes.
        defaults: `SamplingDefaults` of the model, or None.

    Raises:
        InvalidBodyError: invalid JSON, or an unknown, unsupported or invalid parameter.
    """
    given = read_object(body)
    values = read_values(given, _PARAMETERS, _NEUTRAL)
    if values["prompt"] is None:
        raise InvalidBodyError("'prompt' is missing.", "prompt")
    prompt = values["prompt"]
    is_single = isinstance(prompt, str) or _is_ids(prompt)
    count = values["logprobs"]
    values["top_logprobs"] = None if count is None or isinstance(count, bool) else count
    return completion_of(values, [prompt] if is_single else list(prompt), defaults)


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


def completion_of(values: JsonObject, prompts: list[Any], defaults: SamplingDefaults | None = None) -> Completion:
    """The `Completion` of validated parameters.

    Args:
        values: dict of parameters, with "top_logprobs", and "compact" for JSON without whitespace.
        prompts: list of prompts.
        defaults: `SamplingDefaults` of the model, or None.

    Raises:
        InvalidBodyError: an invalid or unsupported response format.
    """
    try:
        grammar = read_response_format(values["response_format"], values.get("compact", False))
    except GrammarError as error:
        raise InvalidBodyError(str(error), "response_format") from None
    sampler, penalty = sampling_of(values, defaults)
    options = {
        "max_new_tokens": values["max_tokens"],
        "sampler": sampler,
        "grammar": grammar,
        "repetition_penalty": penalty,
        "adjustment": _adjustment(values),
        **{name: values[name] for name in ("stop", "seed", "priority", "user", "top_logprobs")},
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


def sampling_of(values: JsonObject, defaults: SamplingDefaults | None) -> tuple[Sampler, float]:
    """The sampler and the repetition penalty of a request.

    What it leaves out is as the model says; without that, the most likely tokens, as `generate` and the command `chat` write
    them. A request that asks for samples, by a filter or by several choices, gets them with temperature 1.

    Args:
        values: dict of parameters, None where the request says nothing.
        defaults: `SamplingDefaults` of the model, or None.

    Example:

    >>> given = dict.fromkeys(("temperature", "top_p", "top_k", "min_p", "repetition_penalty")) | {"n": 1}
    >>> sampling_of(given, None)[0]
    Greedy()
    >>> sampling_of(given, SamplingDefaults(temperature=0.6, top_p=0.9))[0]
    Random(temperature=0.6, top_k=None, top_p=0.9, min_p=None)
    >>> sampling_of(given | {"n": 2}, None)[0].temperature
    1.0
    """
    base = defaults or SamplingDefaults()
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    chosen = {name: getattr(base, name) if values[name] is None else values[name] for name in names}
    asks = values["n"] > 1 or any(values[name] is not None for name in ("top_p", "top_k", "min_p"))
    if values["temperature"] is None and not chosen["temperature"] and asks:
        chosen["temperature"] = 1.0
    if chosen["temperature"] == 0:
        return Greedy(), chosen["repetition_penalty"]
    top_p = None if chosen["top_p"] == 1 else chosen["top_p"]
    temperature = max(chosen["temperature"], MIN_TEMPERATURE)
    sampler = Random(temperature, top_k=chosen["top_k"], top_p=top_p, min_p=chosen["min_p"])
    return sampler, chosen["repetition_penalty"]


def _adjustment(values: JsonObject) -> LogitAdjustment | None:
    bias = tuple((int(token), float(each)) for token, each in (values["logit_bias"] or {}).items())
    penalties = values["frequency_penalty"], values["presence_penalty"]
    return LogitAdjustment(*penalties, bias) if bias or any(penalties) else None


class CompletionResponse:
    """The JSON of the response to one completion request.

    Args:
        model: str. Name of the model.
        requests: list of `Request`, one for each choice.
        num_prompts: int.
        tokenizer: tokenizer of the model; None where results are no text, and choices have "token_ids".
    """

    kind, prefix = "text_completion", "cmpl"

    def __init__(self, model: str, requests: list[Request], num_prompts: int, tokenizer: TextTokenizer | None) -> None:
        self._header = {
            "id": f"{self.prefix}-{uuid.uuid4().hex}",
            "object": self.kind,
            "created": int(time.time()),
            "model": model,
        }
        self._requests = requests
        self._num_prompts = num_prompts
        self._tokenizer, self._has_text = tokenizer, tokenizer is not None
        self._num_sent = [0] * len(requests)

    def complete(self, results: list[str | list[int]]) -> JsonObject:
        """Returns the complete response, from the results of all choices."""
        choices = []
        for index, result in enumerate(results):
            self._num_sent[index] = 0
            choice = self._choice(index, result, self._finish_reason(index))
            choices.append(choice | {"logprobs": self._logprobs(index, len(self._requests[index].new_tokens))})
        return {**self._header, "choices": choices, "usage": self._usage()}

    def chunk(self, index: int, piece: str | int | None) -> JsonObject:
        """Returns a chunk of a stream with a piece of one choice, str or int; None for its end."""
        if piece is None:
            choice = self._choice(index, "" if self._has_text else [], self._finish_reason(index))
        else:
            choice = self._choice(index, piece if self._has_text else [piece], None)
        choice["logprobs"] = self._logprobs(index, self._requests[index].num_taken)
        return {**self._header, "choices": [choice]}

    def usage(self) -> JsonObject:
        """Returns the last chunk of a stream, with the token usage."""
        return {**self._header, "choices": [], "usage": self._usage()}

    def _choice(self, index: int, result: object, finish_reason: str | None) -> JsonObject:
        content = {"text": result} if self._has_text else {"text": "", "token_ids": result}
        return {"index": index, **content, "logprobs": None, "finish_reason": finish_reason}

    def _logprobs(self, index: int, end: int) -> JsonObject | None:
        """The log probabilities of the tokens of a choice that were not sent before, up to one; None if none are kept."""
        request = self._requests[index]
        if not request.keeps_logprobs:
            return None
        found = request.logprobs[self._num_sent[index] : end]
        self._num_sent[index] = max(self._num_sent[index], end)
        ends = request.decoding_request.end_ids
        return self._logprobs_of([each for each in found if each.token not in ends])

    def _logprobs_of(self, found: list[TokenLogprobs]) -> JsonObject:
        return {
            "tokens": [self._text(each.token) for each in found],
            "token_logprobs": [each.logprob for each in found],
            "top_logprobs": [self._by_text(each.top) for each in found],
        }

    def _by_text(self, top: list[tuple[int, float]]) -> dict[str, float]:
        """Log probabilities by text; of tokens of one text, such as parts of characters, further ones by their number."""
        named: dict[str, float] = {}
        for token, value in top:
            text = self._text(token)
            named[f"token_id:{token}" if text in named else text] = value
        return named

    def _text(self, token: int) -> str:
        """A token as text; its number where there is no tokenizer."""
        return str(token) if self._tokenizer is None else self._tokenizer.decode([token])

    def _finish_reason(self, index: int) -> str | None:
        return self._requests[index].finish_reason

    def _usage(self) -> dict[str, int]:
        num_choices = len(self._requests) // self._num_prompts
        prompt = sum(len(request.prompt) for request in self._requests[::num_choices])
        completion = sum(len(request.new_tokens) for request in self._requests)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
