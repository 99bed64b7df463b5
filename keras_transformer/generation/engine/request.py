"""A request in an engine: what it reads and writes, and how its text reaches who asked for it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.decoding_request import ModelOutput
from keras_transformer.generation.errors import RequestCancelledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from keras_transformer.generation.decoding_request import DecodingRequest
    from keras_transformer.generation.engine.cache_pool import CacheTable
    from keras_transformer.generation.stop import StopSequences

_END = object()


class Request:
    """A text that an engine is writing; `Engine.submit` returns it, and any thread may read it.

    Args:
        number: int. Its place in the order of arrival.
        decoding_request: `DecodingRequest` of one prompt.
        sampler: a sampler that draws one token after another.
        stops: `StopSequences`.
        is_text: bool. Whether the prompt was text, so that the result is.

    Attributes:
        finish_reason: None while it runs; then "stop" (the end token, or a stop sequence), "length", "cancelled" or "error".
        prompt: list of int. The tokens that the text continues.
        new_tokens: list of int. The tokens so far, the end included.
    """

    # The blocks and the state of the request, set by `Scheduler.add`.
    table: CacheTable

    def __init__(
        self, number: int, decoding_request: DecodingRequest, sampler: Any, stops: StopSequences, is_text: bool
    ) -> None:
        self.number = number
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
        self._on_cancel: Callable[[], None] | None = None
        # Set by the scheduler: all tokens, and the requests that wait to read the same prompt.
        self.tokens: list[int] = list(self.prompt)
        self.followers: list[Request] = []

    @property
    def new_tokens(self) -> list[int]:
        return self.tokens[len(self.prompt) :]

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the end.

        Args:
            timeout: float, seconds, or None for as long as it takes.

        Returns:
            What `Generator.generate` returns: str for text, list of int for token ids, without the end.

        Raises:
            TimeoutError: it is not complete yet.
            RequestCancelledError: it was cancelled.
            GenerationError: it could not be completed.
        """
        if not self._finished.wait(timeout):
            raise TimeoutError(f"Request {self.number} is not complete after {timeout} s.")
        if self._error is not None:
            raise self._error
        return self._stops.cut(self.new_tokens, self._is_text, self.prompt)

    def stream(self) -> Iterator[Any]:
        """Like `result`, piece by piece, as they come; who stops reading cancels the request.

        Yields:
            str for a text, never half a character; int for token ids.

        Raises:
            RuntimeError: it is streamed already.
            GenerationError: as `result`.
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
            yield token
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Asks that no more be written; nothing happens to a request that is complete."""
        if not self._finished.is_set():
            self._cancelled.set()
            if self._on_cancel is not None:
                self._on_cancel()

    @property
    def is_cancelled(self) -> bool:
        """bool: whether it was asked to end."""
        return self._cancelled.is_set()

    # What follows is for the scheduler.

    @property
    def unread(self) -> int:
        """How many tokens the model has not read."""
        return len(self.tokens) - self.table.length

    def advance(self, logits: np.ndarray) -> bool:
        """Chooses the next token from logits `(V,)`; returns whether the text is complete."""
        model_input = self._search.advance(ModelOutput(logits[None, None], None))
        for token in self._search.emitted[0]:
            self.tokens.append(token)
            self._arrived.put(token)
        return model_input is None

    def finish(self, error: BaseException | None = None) -> None:
        """Ends it: complete, or with an error."""
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
        new = self.new_tokens
        return new[-1] in self.decoding_request.end_ids or (
            self.decoding_request.ends is not None and self.decoding_request.ends(new)
        )
