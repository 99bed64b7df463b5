"""Replicas in the threads of this process: requests that wait are computed together."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import dataclasses
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from keras_transformer.export.errors import ExportError
from keras_transformer.export.serving.batching import Batching
from keras_transformer.export.serving.requests import RequestError


@dataclasses.dataclass(eq=False)
class _Waiting:
    """A request that waits: its arrays, its number of examples, when it came, and where its result goes."""

    request: tuple[str, dict[str, Any]]
    examples: int
    since: float
    future: asyncio.Future[Any]


class LocalReplicas:
    """Threads that compute batches of requests. A runtime releases Python's lock while it computes.

    A thread that has nothing to do takes the requests that wait, up to `max_batch_size` examples; while all threads compute,
    requests gather. With `wait_ms` above 0 the first request of a batch also waits that long for others.

    Args:
        replicas: list of `ArrayReplica`, one for each thread; the same one several times where its runtime computes several
            calls at once.
        batching: `Batching`.
    """

    def __init__(self, replicas: Sequence[Any], batching: Batching) -> None:
        self._batching, self._idle = batching, list(replicas)
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._threads = concurrent.futures.ThreadPoolExecutor(len(replicas), "replica")
        self._timer: asyncio.TimerHandle | None = None

    async def predict(self, signature: str, arrays: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Returns the outputs, and the number of examples of the batch.

        Raises:
            RequestError: 429 where `max_waiting` requests wait; 422 for values that cannot be computed.
        """
        if len(self._waiting) >= self._batching.max_waiting:
            raise RequestError(429, "all slots are taken: try again later")
        loop = asyncio.get_running_loop()
        waiting = _Waiting((signature, arrays), _examples(arrays), loop.time(), loop.create_future())
        self._waiting.append(waiting)
        self._dispatch()
        try:
            result, examples = await waiting.future
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            raise
        if isinstance(result, RequestError):
            raise result
        return result, examples

    async def complete(self, body: bytes, path: str) -> AsyncGenerator[Any, None]:
        """Raises `RequestError`: the model writes no text."""
        raise RequestError(400, "this is no language model")
        yield

    async def is_healthy(self) -> None:
        """Raises nothing: a call that computes something else than the probes is found where it fails."""

    def close(self) -> None:
        """Ends the threads when they have computed what they have begun."""
        self._threads.shutdown()

    def _dispatch(self) -> None:
        """Gives what waits to idle threads."""
        while self._waiting and self._idle:
            if not self._is_due():
                return
            batch = self._take()
            replica = self._idle.pop()
            loop = asyncio.get_running_loop()
            self._threads.submit(self._compute, loop, replica, batch)

    def _is_due(self) -> bool:
        """Whether a batch may start; otherwise it is tried again when its first request has waited."""
        wait = self._batching.wait_ms / 1000
        if not wait or sum(each.examples for each in self._waiting) >= self._batching.max_batch_size:
            return True
        loop = asyncio.get_running_loop()
        due = self._waiting[0].since + wait
        if loop.time() >= due:
            return True
        if self._timer is None:
            self._timer = loop.call_at(due, self._wake)
        return False

    def _wake(self) -> None:
        self._timer = None
        self._dispatch()

    def _take(self) -> list[_Waiting]:
        batch = [self._waiting.popleft()]
        examples = batch[0].examples
        while self._waiting and examples + self._waiting[0].examples <= self._batching.max_batch_size:
            batch.append(self._waiting.popleft())
            examples += batch[-1].examples
        return batch

    def _compute(self, loop: asyncio.AbstractEventLoop, replica: Any, batch: list[_Waiting]) -> None:
        """In a thread: computes a batch."""
        try:
            results, sizes = replica.run([each.request for each in batch])
            answers = [(result, max(sizes)) for result in results]
        except Exception as error:  # Of all requests: what belongs to one is among the results.
            answers = [error] * len(batch)
        loop.call_soon_threadsafe(self._answer, replica, batch, answers)

    def _answer(self, replica: Any, batch: list[_Waiting], answers: list[Any]) -> None:
        self._idle.append(replica)
        self._dispatch()  # First: the thread computes while responses are written.
        for each, answer in zip(batch, answers, strict=True):
            if each.future.done():  # The client has gone.
                continue
            if isinstance(answer, Exception):
                each.future.set_exception(answer)
            else:
                each.future.set_result(answer)


def _examples(arrays: dict[str, Any]) -> int:
    return max((len(each) for each in arrays.values() if each.ndim), default=1)


def check_sessions(sessions: int) -> None:
    """Raises `ExportError` unless it is a number of threads."""
    if not isinstance(sessions, int) or isinstance(sessions, bool) or sessions < 1:
        raise ExportError(f"sessions must be a positive integer. Received: {sessions!r}")
