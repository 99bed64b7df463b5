"""Continuous batching: which requests run together in the next step, and where in the cache."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.engine.cache_pool import CacheTable
from keras_transformer.generation.engine.paging import OutOfBlocksError
from keras_transformer.generation.errors import EngineError, GenerationError, RequestCancelledError

if TYPE_CHECKING:
    from keras_transformer.generation.engine.cache_pool import CachePool
    from keras_transformer.generation.engine.request import Request
    from keras_transformer.generation.protocols import PagedDecodingSteps


class Scheduler:
    """Runs many requests in one batch that changes at every step. One thread calls it.

    First come, first served. In each step the oldest requests read up to `prompt_tokens` of their prompts, chunk by chunk,
    and then all that have read theirs read one token each; so a long prompt holds nobody up. Blocks and states are taken
    when they are needed. When none is left, the youngest request gives its own back and waits; it will read its tokens anew,
    and go on where it was. The oldest therefore always goes on: there is no deadlock.

    Args:
        steps: the model. It has `step(token_ids, tables, cache_index, states)`, which gives logits `(B, V)`, `copy(pairs)`
            of blocks, `copy_states(pairs)`, `reset()` and `chunk_size`.
        pool: `CachePool`. One request must fit in it alone.
        max_batch_size: int >= 1.
        prompt_tokens: int >= 1. The most tokens of prompts that are read in one step.

    Attributes:
        waiting: deque of requests that hold nothing of the cache, in the order of arrival.
        running: list of requests that may hold some, in the order of arrival.
        counters: dict of what has been done.

    Reference: Yu et al., Orca, OSDI 2022, section 3.2 (scheduling by iteration); Agrawal et al., Sarathi-Serve,
    arXiv 2403.02310, section 4 (chunked prefill).
    """

    def __init__(self, steps: PagedDecodingSteps, pool: CachePool, max_batch_size: int, prompt_tokens: int) -> None:
        self.steps = steps
        self.pool = pool
        self.max_batch_size = max_batch_size
        self.prompt_tokens = prompt_tokens
        self.waiting: collections.deque[Request] = collections.deque()
        self.running: list[Request] = []
        self.counters: collections.Counter[str] = collections.Counter()
        self._model_version = steps.model_version

    @property
    def num_unstarted(self) -> int:
        """int: requests that wait, for the first time or again, and those that wait for another to read their prompt."""
        return sum(1 + len(request.followers) for request in list(self.waiting))

    @property
    def has_work(self) -> bool:
        """bool."""
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Puts a request at the end of the queue, with those that follow it."""
        for each in (request, *request.followers):
            each.table = CacheTable(self.pool)
        self.waiting.append(request)

    def admit(self) -> None:
        """Drops what was cancelled, and lets requests join the batch while there is room."""
        if self.steps.model_version != self._model_version:
            self._model_version = self.steps.model_version
            self.recompute()
        for request in [*self.waiting, *self.running]:
            for follower in [each for each in request.followers if each.is_cancelled]:
                request.followers.remove(follower)
                self._end(follower, RequestCancelledError("The request was cancelled."))
            if request.is_cancelled:
                self._end(request, RequestCancelledError("The request was cancelled."))
        while self.waiting and len(self.running) < self.max_batch_size and self._fits(self.waiting[0]):
            self.running.append(self.waiting.popleft())
            self.running.sort(key=_number)

    def run(self) -> None:
        """One step of every running request."""
        room = self.prompt_tokens
        for request in list(self.running):
            while room > 0 and request in self.running and request.unread > 1:
                count = min(request.unread, room, self.steps.chunk_size)
                if self._reserve(request, count):
                    self._read([request], count)
                    room -= count
        rows = [each for each in list(self.running) if self._is_ready(each) and self._reserve(each, 1)]
        if rows:
            self._read(rows, 1)
        self._count()

    def recompute(self) -> None:
        """Discards the cache, because the model has changed: running requests read their tokens again."""
        running, self.running = self.running, []
        for request in running:
            request.table.release()
            self._wait(request)
        self.pool.forget_all()

    def fail(self, error: BaseException) -> None:
        """Ends what runs with an error of the model, and forgets what the cache holds."""
        self.pool.forget_all()
        failed = [each for request in list(self.running) for each in (request, *request.followers)]
        for request in self.running:
            request.followers = []
        for request in failed:
            self._end(request, _engine_error(error))
        self.steps.reset()

    def close(self, error: BaseException) -> None:
        """Ends all there is with an error."""
        for request in [*self.running, *self.waiting]:
            followers, request.followers = request.followers, []
            for each in (request, *followers):
                self._end(each, error)

    def _fits(self, request: Request) -> bool:
        """Whether the tokens of a waiting request find room; it then holds the blocks that it shares with others."""
        self.counters["prefix_tokens"] += request.table.adopt(request.tokens)
        together = [*self.running, request]
        if self.pool.has_room([each.table for each in together], [len(each.tokens) for each in together]):
            return True
        self.counters["prefix_tokens"] -= request.table.length
        request.table.release()
        return False

    def _is_ready(self, request: Request) -> bool:
        return request in self.running and request.unread == 1

    def _reserve(self, request: Request, count: int) -> bool:
        """Room for new tokens, at the cost of younger requests; False if it was the youngest itself that gave way."""
        while True:
            try:
                blocks, states = request.table.reserve(count)
            except OutOfBlocksError:
                youngest = self.running.pop()
                youngest.table.release()
                self._wait(youngest)
                self.counters["preemptions"] += 1
                if youngest is request:
                    return False
            else:
                if blocks:
                    self.steps.copy(blocks)
                if states:
                    self.steps.copy_states(states)
                return True

    def _read(self, rows: Any, count: int) -> None:
        """The model reads so many tokens of each row, and the rows that have read all choose the next."""
        starts = [request.table.length for request in rows]
        tokens = [request.tokens[start : start + count] for request, start in zip(rows, starts, strict=True)]
        tables = [request.table for request in rows]
        logits = self.steps.step(tokens, [table.blocks for table in tables], starts, [table.state for table in tables])
        for request, read, row in zip(rows, tokens, logits, strict=True):
            request.table.extend(read)
            if request.unread == 0:
                self._fork(request, row)
                self._advance(request, row)
        self.counters["steps"] += 1
        self.counters["tokens_read"] += count * len(rows)

    def _advance(self, request: Request, logits: np.ndarray) -> None:
        try:
            is_finished = request.advance(logits)
        except Exception as error:  # Of its own sampler or tokenizer: the others go on.
            self._end(request, _engine_error(error))
            return
        self.counters["tokens_written"] += 1
        if is_finished:
            self._end(request)

    def _fork(self, request: Request, logits: np.ndarray) -> None:
        """Lets those that wait for this prompt go on from here; who finds no place in the batch waits for one."""
        followers, request.followers = request.followers, []
        places = self.max_batch_size - len(self.running)
        for follower in followers[:places]:
            follower.table = request.table.fork()
            self.running.append(follower)
            self._advance(follower, logits)
        self.running.sort(key=_number)
        for follower in followers[places:]:
            self._wait(follower)

    def _wait(self, request: Request) -> None:
        """Puts a request back where it stood in the queue."""
        self.waiting = collections.deque(sorted([*self.waiting, request], key=_number))

    def _end(self, request: Request, error: BaseException | None = None) -> None:
        """Ends a request wherever it is, and gives back what it holds."""
        for requests in (self.running, self.waiting):
            if request in requests:
                requests.remove(request)
        request.table.release()
        if request.followers:  # They read the prompt by themselves, the first of them for the others.
            first, *first.followers = request.followers
            request.followers = []
            self._wait(first)
        request.finish(error)
        self.counters["finished"] += 1

    def _count(self) -> None:
        """What the blocks hold after a step, for the share that is wasted."""
        pool = self.pool.blocks
        if pool is None:
            return
        tables = [request.table for request in self.running]
        self.counters["slots_held"] += pool.num_used * pool.block_size
        self.counters["slots_wasted"] += sum(len(table.blocks) * pool.block_size - table.length for table in tables)


def _number(request: Request) -> int:
    return request.number


def _engine_error(error: BaseException) -> GenerationError:
    if isinstance(error, GenerationError):
        return error
    failure = EngineError(f"The model failed: {type(error).__name__}: {error}".splitlines()[0])
    failure.__cause__ = error
    return failure
