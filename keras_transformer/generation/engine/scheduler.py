"""The scheduler of continuous batching."""

from __future__ import annotations

import collections
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.generation.engine.cache_pool import CacheTable
from keras_transformer.generation.engine.paging import OutOfBlocksError
from keras_transformer.generation.engine.waiting_queue import WaitingQueue
from keras_transformer.generation.errors import EngineError, GenerationError, RequestCancelledError
from keras_transformer.utils.errors import failure_to, one_line
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    from keras_transformer.generation.engine.cache_pool import CachePool
    from keras_transformer.generation.engine.request import Request
    from keras_transformer.generation.protocols import PagedDecodingSteps


class Scheduler:
    """Schedules requests in a batch that changes at every step. It is not thread-safe.

    `WaitingQueue` chooses who joins the batch. In each step the first requests of the batch prefill up to `prompt_tokens`
    prompt tokens in chunks, then every request with a complete prefill decodes one token, so a long prompt does not block
    the others. Blocks and states are allocated on demand. If none is free, the last request is preempted: the youngest of
    the lowest priority. Its cache is released, and it waits to be recomputed. The first request can therefore always
    continue, so there is no deadlock. A waiting request without room preempts running ones of lower priority, and no others.

    Args:
        steps: `protocols.PagedDecodingSteps`, the model.
        pool: `CachePool`. It must be large enough for one request.
        max_batch_size: int >= 1. Maximum number of running requests.
        prompt_tokens: int >= 1. Maximum number of prompt tokens in a step.

    Attributes:
        waiting: `WaitingQueue` of requests without cache.
        running: list of requests in the batch, by priority and then in order of arrival.
        counters: Counter for `Engine.stats`.
        is_stale: bool. Whether the cache is invalid and the next `admit` calls `recompute`.

    Reference: Yu et al., Orca, OSDI 2022, section 3.2 (scheduling by iteration); Agrawal et al., Sarathi-Serve,
    arXiv 2403.02310, section 4 (chunked prefill).
    """

    def __init__(self, steps: PagedDecodingSteps, pool: CachePool, max_batch_size: int, prompt_tokens: int) -> None:
        self.steps = steps
        self.pool = pool
        self.max_batch_size = max_batch_size
        self.prompt_tokens = prompt_tokens
        self.waiting = WaitingQueue()
        self.running: list[Request] = []
        self.counters: collections.Counter[str] = collections.Counter()
        self.is_stale = False
        self._model_version = steps.model_version

    @property
    def num_waiting(self) -> int:
        """int: number of waiting requests, including preempted ones and followers."""
        return sum(1 + len(request.followers) for request in self.waiting)

    @property
    def has_work(self) -> bool:
        """bool: whether any request is waiting or running."""
        return bool(self.waiting or self.running)

    def num_requests(self, user: Hashable) -> int:
        """Returns the number of requests of a user, waiting or running, with followers."""
        return self.waiting.num_requests(user)

    def add(self, request: Request) -> None:
        """Adds a request and its followers to the queue."""
        for each in (request, *request.followers):
            each.table = CacheTable(self.pool)
            self.waiting.enter(each.user)
        self.waiting.add(request)

    def admit(self) -> None:
        """Removes cancelled requests, and moves waiting requests to the batch while there is room."""
        if self.is_stale or self.steps.model_version != self._model_version:
            self.is_stale = False
            self._model_version = self.steps.model_version
            self.recompute()
        for request in [*self.waiting, *self.running]:
            for follower in [each for each in request.followers if each.is_cancelled]:
                request.followers.remove(follower)
                self._finish(follower, RequestCancelledError("The request was cancelled."))
            if request.is_cancelled:
                self._finish(request, RequestCancelledError("The request was cancelled."))
        while self.waiting:
            request = self.waiting.next
            if len(self.running) < self.max_batch_size and self._can_admit(request):
                self.waiting.remove(request)
                self.running.append(request)
                self.running.sort(key=_rank)
            elif self.running and self.running[-1].priority < request.priority:
                self._preempt_last()
            else:
                break

    def run(self) -> None:
        """Runs one step: chunked prefill, then one token of each decoding request."""
        budget = self.prompt_tokens
        for request in list(self.running):
            while budget > 0 and request in self.running and request.unread > 1:
                count = min(request.unread, budget, self.steps.chunk_size)
                if self._reserve(request, count):
                    self._read([request], count)
                    budget -= count
        rows = [each for each in list(self.running) if self._is_ready(each) and self._reserve(each, 1)]
        if rows:
            self._read(rows, 1)
        self._count()

    def recompute(self) -> None:
        """Resets the prefix cache and preempts all running requests, which read their tokens again."""
        running, self.running = self.running, []
        for request in running:
            request.table.release()
            self.waiting.add(request)
        self.pool.reset_prefix_cache()

    def fail(self, error: BaseException) -> None:
        """Ends all running requests with an error of the model, and resets the cache."""
        self.pool.reset_prefix_cache()
        failed = [each for request in list(self.running) for each in (request, *request.followers)]
        for request in self.running:
            request.followers = []
        for request in failed:
            self._finish(request, _engine_error(error))
        self.steps.reset()

    def close(self, error: BaseException) -> None:
        """Ends all requests with an error."""
        for request in [*self.running, *self.waiting]:
            followers, request.followers = request.followers, []
            for each in (request, *followers):
                self._finish(each, error)

    def _can_admit(self, request: Request) -> bool:
        """Returns whether the cache has room for a waiting request, which then references its cached prefix."""
        self.counters["prefix_tokens"] += request.table.reuse_prefix(request.tokens)
        batch = [*self.running, request]
        if self.pool.has_room([each.table for each in batch], [len(each.tokens) for each in batch]):
            return True
        self.counters["prefix_tokens"] -= request.table.length
        request.table.release()
        return False

    def _is_ready(self, request: Request) -> bool:
        return request in self.running and request.unread == 1

    def _reserve(self, request: Request, count: int) -> bool:
        """Allocates cache for new tokens, preempting the last if needed; False if that is the request itself."""
        while True:
            try:
                blocks, states = request.table.reserve(count)
            except OutOfBlocksError:
                if self._preempt_last() is request:
                    return False
            else:
                if blocks:
                    self.steps.copy(blocks)
                if states:
                    self.steps.copy_states(states)
                return True

    def _preempt_last(self) -> Request:
        """Releases the cache of the last running request, which waits again; returns it."""
        last = self.running.pop()
        last.table.release()
        self.waiting.add(last)
        self.counters["preemptions"] += 1
        return last

    def _read(self, rows: ArrayLike, count: int) -> None:
        """Reads `count` tokens of each request, and selects the next token of those without unread tokens."""
        starts = [request.table.length for request in rows]
        tokens = [request.tokens[start : start + count] for request, start in zip(rows, starts, strict=True)]
        tables = [request.table for request in rows]
        logits = self.steps.step(tokens, [table.blocks for table in tables], starts, [table.state for table in tables])
        for request, read, row in zip(rows, tokens, logits, strict=True):
            request.table.extend(read)
            self.waiting.charge(request.user, read=count)
            if request.unread == 0:
                self._fork(request, row)
                self._advance(request, row)
        self.counters["steps"] += 1
        self.counters["tokens_read"] += count * len(rows)

    def _advance(self, request: Request, logits: np.ndarray) -> None:
        """Chooses the next token. An error of its sampler or tokenizer ends this request only."""
        failures: list[BaseException] = []
        is_finished = False
        with failure_to(failures.append):
            is_finished = request.advance(logits)
        if failures:
            self._finish(request, _engine_error(failures[0]))
            return
        self.counters["tokens_written"] += 1
        self.waiting.charge(request.user, written=1)
        if is_finished:
            self._finish(request)

    def _fork(self, request: Request, logits: np.ndarray) -> None:
        """Forks the cache for followers, which wait for this prompt. Followers that exceed the batch are queued."""
        followers, request.followers = request.followers, []
        free_rows = self.max_batch_size - len(self.running)
        for follower in followers[:free_rows]:
            follower.table = request.table.fork()
            self.running.append(follower)
            self._advance(follower, logits)
        self.running.sort(key=_rank)
        for follower in followers[free_rows:]:
            self.waiting.add(follower)

    def _finish(self, request: Request, error: BaseException | None = None) -> None:
        """Ends a request, waiting or running, and releases its cache."""
        for requests in (self.running, self.waiting):
            if request in requests:
                requests.remove(request)
        request.table.release()
        if request.followers:  # The first follower reads the prompt for the others.
            first, *first.followers = request.followers
            request.followers = []
            self.waiting.add(first)
        self.waiting.leave(request.user)
        request.finish(error)
        self.counters["finished"] += 1

    def _count(self) -> None:
        """Updates the slot counters after a step."""
        pool = self.pool.blocks
        if pool is None:
            return
        tables = [request.table for request in self.running]
        self.counters["slots_held"] += pool.num_used * pool.block_size
        self.counters["slots_wasted"] += sum(len(table.blocks) * pool.block_size - table.length for table in tables)


def _rank(request: Request) -> tuple[int, int]:
    return -request.priority, request.number


def _engine_error(error: BaseException) -> GenerationError:
    if isinstance(error, GenerationError):
        return error
    failure = EngineError(f"The model failed: {type(error).__name__}: {one_line(error)}")
    failure.__cause__ = error
    return failure
