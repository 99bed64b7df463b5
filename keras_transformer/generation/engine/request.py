"""A request of an engine: its tokens, its state and its output stream."""

from __future__ import annotations

import queue
import threading
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_transformer.generation.decoding_request import ModelOutput
from keras_transformer.generation.errors import RequestCancelledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from keras_transformer.generation.decoding_request import DecodingRequest
    from keras_transformer.generation.engine.cache_pool import CacheTable
    from keras_transformer.generation.protocols import Sampler
    from keras_transformer.generation.stop import StopSequences

_END = object()


class TokenLogprobs(NamedTuple):
    """The log probability of a generated token, and those of the most likely tokens at its index.

    Attributes:
        token: int.
        logprob: float.
        top: list of pairs of token and log probability, the most likely first.
    """

    token: int
    logprob: float
    top: list[tuple[int, float]]


def token_logprobs(logits: np.ndarray, token: int, count: int) -> TokenLogprobs:
    """Returns the log probabilities under the model, before temperature, filters and penalties.

    Args:
        logits: float `(V,)`.
        token: int.
        count: int >= 0. Number of most likely tokens.

    Example:

    >>> found = token_logprobs(np.log([0.5, 0.25, 0.25]), token=1, count=1)
    >>> round(found.logprob, 4), [(token, round(value, 4)) for token, value in found.top]
    (-1.3863, [(0, -0.6931)])
    """
    values = logits.astype("float64")
    values = values - values.max()
    values -= np.log(np.exp(values).sum())
    best = np.argsort(-values, kind="stable")[:count]
    return TokenLogprobs(token, float(values[token]), [(int(each), float(values[each])) for each in best])


class Request:
    """The handle of a request in an engine, as `Engine.submit` returns it. Its public methods are thread-safe.

    Args:
        number: int. Position in the order of arrival.
        decoding_request: `DecodingRequest` of one prompt.
        sampler: `protocols.TokenSampler`.
        stops: `StopSequences`.
        is_text: bool. Whether the result is text.
        priority: int. Requests with a larger one come first. Default 0.
        user: a hashable value. Who asks; users take turns. Default None.
        top_logprobs: int >= 0 or None. Number of the most likely tokens whose log probabilities are kept for each new token,
            besides its own; None (default) to keep none.

    Attributes:
        finish_reason: None while it runs; then "stop" (end token or stop sequence), "length", "cancelled" or "error".
        prompt: list of int. Tokens of the prompt.
        new_tokens: list of int. Tokens generated so far, including the end token.
        logprobs: list of `TokenLogprobs` of the new tokens; empty without `top_logprobs`.
        num_taken: int. Number of new tokens that `stream` has read.
    """

    # The block table and the state of the request, set by `Scheduler.add`.
    table: CacheTable

    def __init__(
        self,
        number: int,
        decoding_request: DecodingRequest,
        sampler: Sampler,
        stops: StopSequences,
        is_text: bool,
        priority: int = 0,
        user: Hashable = None,
        top_logprobs: int | None = None,
    ) -> None:
        self.number = number
        self.priority = priority
        self.user = user
        self.decoding_request = decoding_request
        self.finish_reason: str | None = None
        self.prompt = decoding_request.prompts[0].tolist()
        self._search = sampler.search(decoding_request)
        self._stops = stops
        self._is_text = is_text
        self._error: BaseException | None = None
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._finished = threading.Event()
        self._cancelled = threading.Event()
        self._streamed = False
        self._top_logprobs = top_logprobs
        self.logprobs: list[TokenLogprobs] = []
        self.num_taken = 0
        self._on_cancel: Callable[[], None] | None = None
        # Used by the scheduler: all tokens, and the requests that wait until this one has read their common prompt.
        self.tokens: list[int] = list(self.prompt)
        self.followers: list[Request] = []

    @property
    def keeps_logprobs(self) -> bool:
        """bool: whether log probabilities are kept."""
        return self._top_logprobs is not None

    @property
    def new_tokens(self) -> list[int]:
        """list of int: tokens generated so far, including the end token."""
        return self.tokens[len(self.prompt) :]

    def result(self, timeout: float | None = None) -> Any:
        """Waits until the request is finished.

        Args:
            timeout: float, in seconds; None for no limit.

        Returns:
            The result of `Generator.generate`: str for text, list of int for token ids, without the end token.

        Raises:
            TimeoutError: the request is not finished after `timeout`.
            RequestCancelledError: it was cancelled.
            GenerationError: it failed.
        """
        if not self._finished.wait(timeout):
            raise TimeoutError(f"Request {self.number} is not finished after {timeout} s.")
        if self._error is not None:
            raise self._error
        return self._stops.cut(self.new_tokens, self._is_text, self.prompt)

    def stream(self) -> Iterator[Any]:
        """Streams the result as it is generated. Closing the iterator early cancels the request.

        Yields:
            str of complete characters for text; int for token ids.

        Raises:
            RuntimeError: `stream` was called before.
            GenerationError: as in `result`.
        """
        if self._streamed:
            raise RuntimeError("A request can be streamed once.")
        self._streamed = True
        return self._pieces()

    def _pieces(self) -> Iterator[Any]:
        try:
            yield from self._stops.stream(self._tokens(), self._is_text, self.prompt)
        finally:
            self.cancel()

    def _tokens(self) -> Iterator[int]:
        while (token := self._arrived.get()) is not _END:
            self.num_taken += 1
            yield token
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Cancels the request. It has no effect on a finished request."""
        if not self._finished.is_set():
            self._cancelled.set()
            if self._on_cancel is not None:
                self._on_cancel()

    @property
    def is_cancelled(self) -> bool:
        """bool: whether the request was cancelled."""
        return self._cancelled.is_set()

    # The methods below are for the scheduler.

    @property
    def unread(self) -> int:
        """int: number of tokens that the model has not read."""
        return len(self.tokens) - self.table.length

    def advance(self, logits: np.ndarray) -> bool:
        """Selects the next token from logits `(V,)`; returns whether the sequence is complete."""
        model_input = self._search.advance(ModelOutput(logits[None, None], None))
        for token in self._search.emitted[0]:
            if self._top_logprobs is not None:
                self.logprobs.append(token_logprobs(logits, token, self._top_logprobs))
            self.tokens.append(token)
            self._arrived.put(token)
        return model_input is None

    def finish(self, error: BaseException | None = None) -> None:
        """Marks the request as finished, successfully or with an error."""
        if self._finished.is_set():
            return
        self._error = error
        if isinstance(error, RequestCancelledError):
            self.finish_reason = "cancelled"
        elif error is not None:
            self.finish_reason = "error"
        else:
            self.finish_reason = "stop" if self._is_stopped() else "length"
        self._finished.set()
        self._arrived.put(_END)

    def _is_stopped(self) -> bool:
        return self.decoding_request.is_stopped(self.new_tokens)
