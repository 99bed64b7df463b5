"""Serving many requests at once: a thread that runs them in one batch, and the queue before it."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

from keras_transformer.generation.engine.cache_pool import CachePool
from keras_transformer.generation.engine.paging import BlockPool
from keras_transformer.generation.engine.request import Request
from keras_transformer.generation.engine.scheduler import Scheduler
from keras_transformer.generation.errors import (
    EngineClosedError,
    EngineError,
    GenerationError,
    MissingTokenizerError,
    QueueFullError,
)
from keras_transformer.generation.generator import Generator

if TYPE_CHECKING:
    from keras_transformer.generation.protocols import ServedModel


class Engine:
    """Continuous batching over a paged cache: requests arrive, join the running batch at the next step, stream and leave.

    Each gets the text that `model.generate` gives it alone (int8 blocks apart): the same arguments, samplers and seeds.
    Prompts that begin alike share blocks. What a model keeps in a state of fixed size (a recurrence, a window, a memory of
    segments) lies in states, one for each request that runs, whatever its length; then each reads its whole prompt. Any
    thread may submit, read and cancel. Who runs when: see `scheduler.Scheduler`.

    Args:
        model: `LanguageModel` without an encoder; or what has `generator()` and `paged_steps`.
        max_batch_size: int >= 1. The most requests that run at once. Default 16.
        num_blocks: int >= 1. The blocks of the cache, of all requests together; a model that keeps nothing but states has
            none. Default 512.
        block_size: int >= 1. Tokens of a block. Default 16.
        max_waiting: int >= 1. The most requests that wait; further ones are refused, or wait outside. Default 64.
        chunk_size: int >= 1. Tokens of a prompt that are read in one call. Default 64.
        prompt_tokens: int >= 1. The most tokens of prompts that are read between two tokens of a text: more gets more done,
            less makes texts flow more evenly. Default 256.
        quantize: None or "int8". How the blocks keep keys and values.

    Raises:
        GenerationError: arguments out of range; an encoder-decoder; a cache that neither keeps all tokens nor has one size.

    Example:

    >>> from keras_transformer import models, tasks
    >>> model = tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=50))
    >>> model.compile(jit_compile=False)
    >>> with Engine(model, num_blocks=8, block_size=4) as engine:
    ...     first, second = engine.submit([3, 1, 4], max_new_tokens=5), engine.submit([1, 5], max_new_tokens=2)
    ...     texts = list(first.stream()), second.result()
    >>> texts == (model.generate([3, 1, 4], max_new_tokens=5), model.generate([1, 5], max_new_tokens=2))
    True

    Reference: Kwon et al., arXiv 2309.06180; Yu et al., Orca, OSDI 2022.
    """

    def __init__(
        self,
        model: ServedModel,
        max_batch_size: int = 16,
        num_blocks: int = 512,
        block_size: int = 16,
        max_waiting: int = 64,
        chunk_size: int = 64,
        prompt_tokens: int = 256,
        quantize: str | None = None,
    ) -> None:
        sizes = {
            "max_batch_size": max_batch_size,
            "num_blocks": num_blocks,
            "block_size": block_size,
            "max_waiting": max_waiting,
            "chunk_size": chunk_size,
            "prompt_tokens": prompt_tokens,
        }
        for name, size in sizes.items():
            if not isinstance(size, int) or size < 1:
                raise GenerationError(f"{name} must be a positive integer. Received: {size!r}")
        if quantize not in (None, "int8"):
            raise GenerationError(f"quantize must be None or 'int8'. Received: {quantize!r}")
        options = {"max_batch_size": max_batch_size, "chunk_size": chunk_size, "quantize": quantize is not None}
        # One more, for padding.
        self.steps = model.paged_steps(num_blocks + 1, block_size, **options)
        num_blocks = num_blocks if self.steps.keeps_slots else 0
        generator = model.generator()
        self.tokenizer = generator.tokenizer
        self._reader = Generator(self.steps, generator.tokenizer)
        pool = CachePool(num_blocks, block_size, max_batch_size if self.steps.keeps_states else 0)
        self._scheduler = Scheduler(self.steps, pool, max_batch_size, prompt_tokens)
        self._max_waiting = max_waiting
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._inbox: list[Request] = []
        self._thread: threading.Thread | None = None
        self._closing: str | None = None

    def warm_up(self) -> Engine:
        """Compiles all that serving will need, so that no request waits for it. Before the first request.

        Returns:
            The engine.
        """
        self.steps.warm_up()
        return self

    def submit(self, prompt: Any, *, wait: float | None = 0.0, **options: Any) -> Request:
        """Asks for the continuation of one prompt.

        Args:
            prompt: str, or list of int.
            wait: float, seconds to wait for a place in the queue, or None for as long as it takes. Default 0.
            **options: `max_new_tokens`, `sampler`, `stop`, `seed`, `repetition_penalty` of `Generator.generate`.

        Returns:
            `Request`, with `stream()`, `result()` and `cancel()`.

        Raises:
            QueueFullError: no place came free.
            EngineClosedError: the engine is closed.
            PromptTooLongError: more tokens than the model, or the whole cache, can hold.
            GenerationError: what is asked for cannot be had; as in `Generator.generate`.
        """
        return self.submit_samples(prompt, 1, wait=wait, **options)[0]

    def submit_samples(
        self, prompt: Any, count: int, *, wait: float | None = 0.0, as_text: bool | None = None, **options: Any
    ) -> list[Request]:
        """Asks for several continuations of one prompt, which is read once: they share its blocks until they differ.

        Args:
            prompt, wait, options: as in `submit`.
            count: int >= 1.
            as_text: bool. Whether results are text; None: as the prompt is.

        Returns:
            List of `Request`; with the same seed their results are those of `generate([prompt] * count)`.

        Raises:
            GenerationError: as in `submit`.
        """
        if not isinstance(count, int) or count < 1:
            raise GenerationError(f"count must be a positive integer. Received: {count!r}")
        sampler, prompts, decoding_requests, stops = self._reader.plan([prompt] * count, **options)
        if not hasattr(sampler, "is_random"):
            raise GenerationError(
                f"{type(sampler).__name__} keeps several texts for a prompt; an engine runs samplers that draw one token "
                "after another: use generate."
            )
        as_text = prompts.is_text if as_text is None else as_text
        if as_text and self.tokenizer is None:
            raise MissingTokenizerError("The model has no tokenizer, so that results are token ids.")
        with self._changed:
            self._wait_for_room(count, wait)
            requests = [
                Request(next(self._numbers), decoding_request, sampler, stops, as_text)
                for decoding_request in decoding_requests
            ]
            for request in requests:
                request._on_cancel = self._wake
            first, *first.followers = requests
            self._inbox.append(first)
            self._start()
            self._changed.notify_all()
        return requests

    def stats(self) -> dict[str, Any]:
        """What the engine is doing and has done.

        Returns:
            dict: "running", "waiting", "blocks", "blocks_used", "states", "states_used"; since the start "finished",
            "preemptions", "prefix_tokens" (found in the cache, not read again), "tokens_read", "tokens_written", "steps";
            and "cache_waste", the share of the slots of held blocks that held no token, over all steps.
        """
        pool, counters = self._scheduler.pool, self._scheduler.counters
        names = ("finished", "preemptions", "prefix_tokens", "tokens_read", "tokens_written", "steps")
        return {
            "running": len(self._scheduler.running),
            "waiting": self._num_waiting(),
            **_counted("blocks", pool.blocks),
            **_counted("states", pool.states),
            **{name: counters[name] for name in names},
            "cache_waste": counters["slots_wasted"] / max(counters["slots_held"], 1),
        }

    @property
    def is_open(self) -> bool:
        """bool: whether requests are taken."""
        return not self._closing

    def close(self, drain: bool = False) -> None:
        """Takes no more requests, and ends.

        Args:
            drain: bool. Whether to complete those that it has; otherwise they end with `EngineClosedError`.
        """
        with self._changed:
            self._closing = "drain" if drain else "now"
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def __enter__(self) -> Engine:
        with self._changed:
            self._start()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        self.close(drain=error is None)

    def _start(self) -> None:
        if self._closing:
            raise EngineClosedError("The engine is closed.")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="keras-transformer-engine", daemon=True)
            self._thread.start()

    def _num_waiting(self) -> int:
        return sum(1 + len(request.followers) for request in list(self._inbox)) + self._scheduler.num_unstarted

    def _wait_for_room(self, count: int, wait: float | None) -> None:
        """Returns when the queue has so many places; `_changed` is held."""
        deadline = None if wait is None else time.monotonic() + wait
        while not self._closing and self._num_waiting() + count > self._max_waiting:
            left = None if deadline is None else deadline - time.monotonic()
            if count > self._max_waiting or (left is not None and left <= 0):
                raise QueueFullError(f"{self._num_waiting()} requests wait already, of at most {self._max_waiting}.")
            self._changed.wait(left)
        if self._closing:
            raise EngineClosedError("The engine is closed.")

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _serve(self) -> None:
        """The engine's thread: whatever happens in it, every request ends."""
        error: EngineClosedError | EngineError = EngineClosedError(
            "The engine was closed before the text was complete."
        )
        try:
            self._run()
        except BaseException as failure:
            error = EngineError(f"The engine failed: {type(failure).__name__}: {failure}".splitlines()[0])
            error.__cause__ = failure
        with self._changed:
            self._closing = self._closing or "now"
            self._take_arrivals()
            self._scheduler.close(error)
            self._changed.notify_all()

    def _run(self) -> None:
        scheduler = self._scheduler
        while True:
            with self._changed:
                while not (self._inbox or scheduler.has_work or self._closing):
                    self._changed.wait()
                self._take_arrivals()
                if self._closing == "now" or (self._closing and not scheduler.has_work):
                    return
                scheduler.admit()
                self._changed.notify_all()
            try:
                scheduler.run()
            except Exception as error:
                scheduler.fail(error)

    def _take_arrivals(self) -> None:
        for request in self._inbox:
            self._scheduler.add(request)
        self._inbox.clear()


def _counted(name: str, pool: BlockPool | None) -> dict[str, int]:
    """What there is of a `BlockPool`, or of None, and what is in use."""
    return {name: pool.num_blocks - 1 if pool else 0, f"{name}_used": pool.num_used if pool else 0}
