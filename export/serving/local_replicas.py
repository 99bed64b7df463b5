"""Replicas in the threads of this process: requests that wait are computed together."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import ExportError
from keras_transformer.export.runtime.cancellation import Cancellation
from keras_transformer.export.serving.batching import Batching
from keras_transformer.export.serving.requests import RequestError
from keras_transformer.utils.errors import failure_to
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import numpy as np

    from keras_transformer.export.serving.replicas import ArrayReplica


@dataclasses.dataclass(eq=False)
class _Waiting:
    """A request that waits: its arrays, its number of examples, when it came, and where its result goes."""

    request: tuple[str, dict[str, np.ndarray]]
    examples: int
    since: float
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    is_wanted: bool = True


class LocalReplicas:
    """Threads that compute batches of requests. A runtime releases Python's lock while it computes.

    A thread that has nothing to do takes the requests that wait, up to `max_batch_size` examples; while all threads compute,
    requests gather. A batch of which nobody waits for a result any more is ended, where the runtime can be told. With
    `wait_ms` above 0 the first request of a batch also waits that long for others.

    Args:
        replicas: list of `ArrayReplica`, one for each thread; the same one several times where its runtime computes several
            calls at once.
        batching: `Batching`.
    """

    def __init__(self, replicas: Sequence[ArrayReplica], batching: Batching) -> None:
        self._batching, self._wait_s = batching, batching.wait_ms / 1000
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._computed: list[tuple[list[_Waiting], Cancellation]] = []
        # Threads take the next batch themselves: waking the event loop for it would cost as much as a small model.
        self._threads = [threading.Thread(target=self._work, args=(each,), daemon=True) for each in replicas]
        for each in self._threads:
            each.start()

    async def predict(self, signature: str, arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        """Returns the outputs, and the number of examples of the batch.

        Raises:
            RequestError: 429 where `max_waiting` requests wait; 422 for values that cannot be computed.
        """
        loop = asyncio.get_running_loop()
        request = (signature, arrays)
        waiting = _Waiting(request, _examples(arrays), time.monotonic(), loop, loop.create_future())
        with self._changed:
            if len(self._waiting) >= self._batching.max_waiting:
                raise RequestError(429, "all slots are taken: try again later")
            self._waiting.append(waiting)
            self._changed.notify()
        try:
            result, examples = await waiting.future
        except asyncio.CancelledError:
            with self._changed:
                waiting.is_wanted = False
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                ended = [each for batch, each in self._computed if waiting in batch and not any(_wanted(batch))]
            for each in ended:
                each.cancel()
            raise
        if isinstance(result, RequestError):
            raise result
        return result, examples

    async def complete(self, body: bytes, path: str) -> AsyncGenerator[JsonObject, None]:
        """Raises `RequestError`: the model writes no text."""
        raise RequestError(400, "this is no language model")
        yield

    async def is_healthy(self) -> None:
        """Raises `ExportError` if a thread has ended."""
        if not all(each.is_alive() for each in self._threads):
            raise ExportError("a thread has ended")

    def close(self) -> None:
        """Ends the threads when they have computed what they have begun."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for each in self._threads:
            each.join()

    def _work(self, replica: ArrayReplica) -> None:
        """One thread."""
        while batch := self._next():
            cancellation = Cancellation()
            computed = (batch, cancellation)
            with self._changed:
                self._computed.append(computed)
            with failure_to(functools.partial(_fail, batch)), cancellation.applied():
                results, sizes = replica.run([each.request for each in batch])
                _answer(batch, [(result, max(sizes)) for result in results])
            with self._changed:
                self._computed.remove(computed)

    def _next(self) -> list[_Waiting]:
        """Waits for a batch; [] when the replicas are closed."""
        with self._changed:
            while not self._is_closed:
                due = self._due()
                if due is not None and due <= 0:
                    return self._take()
                self._changed.wait(due)
            return []

    def _due(self) -> float | None:
        """Seconds until a batch may start; None if nothing waits."""
        if not self._waiting:
            return None
        if not self._wait_s or sum(each.examples for each in self._waiting) >= self._batching.max_batch_size:
            return 0
        return self._waiting[0].since + self._wait_s - time.monotonic()

    def _take(self) -> list[_Waiting]:
        batch = [self._waiting.popleft()]
        examples = batch[0].examples
        while self._waiting and examples + self._waiting[0].examples <= self._batching.max_batch_size:
            batch.append(self._waiting.popleft())
            examples += batch[-1].examples
        return batch


def _wanted(batch: list[_Waiting]) -> Iterator[bool]:
    return (each.is_wanted for each in batch)


def _fail(batch: list[_Waiting], error: BaseException) -> None:
    """Answers all requests of a batch with an error: what belongs to one is among the results."""
    _answer(batch, [error if isinstance(error, Exception) else RuntimeError(type(error).__name__)] * len(batch))


def _answer(batch: list[_Waiting], answers: Sequence[object]) -> None:
    """Hands answers to the event loops of the requests, each of which is woken once."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], object]]] = {}
    for each, answer in zip(batch, answers, strict=True):
        loops.setdefault(each.loop, []).append((each.future, answer))
    for loop, pairs in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, pairs)


def _resolve(pairs: list[tuple[asyncio.Future[Any], object]]) -> None:
    for future, answer in pairs:
        if future.done():  # The client has gone.
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _examples(arrays: dict[str, np.ndarray]) -> int:
    return max((len(each) for each in arrays.values() if each.ndim), default=1)


def check_sessions(sessions: int) -> None:
    """Raises `ExportError` unless it is a number of threads."""
    if not isinstance(sessions, int) or isinstance(sessions, bool) or sessions < 1:
        raise ExportError(f"sessions must be a positive integer. Received: {sessions!r}")
