"""The serving engine: continuous batching in a thread, with a queue of requests."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Hashable, Mapping, Sequence
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
    UserLimitError,
)
from keras_transformer.generation.generator import Generator
from keras_transformer.generation.protocols import TokenSampler
from keras_transformer.generation.sampling_defaults import SamplingDefaults
from keras_transformer.utils.errors import failure_to, one_line
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.generation.chat.messages import Tools
    from keras_transformer.generation.prompts import PromptsLike
    from keras_transformer.generation.protocols import ServedModel


class Engine:
    """Serving engine with continuous batching and a paged cache. Requests join and leave the running batch at any step.

    The result of a request is equal to that of `model.generate` with the same arguments, sampler and seed, except with int8
    blocks. Requests with a common prompt prefix share blocks (prefix caching). A layer with a state of fixed size (a
    recurrence, a window, a memory of segments) uses one state for each running request; a model with states has no prefix
    caching. Users take turns, regardless of how much each asks. All methods are thread-safe. For the scheduling policy see
    `scheduler.Scheduler` and `waiting_queue.WaitingQueue`.

    Args:
        model: `LanguageModel` without an encoder, or another `protocols.ServedModel`.
        max_batch_size: int >= 1. Maximum number of running requests. Default 16.
        num_blocks: int >= 1. Number of cache blocks for all requests; unused by a model with states only. Default 512.
        block_size: int >= 1. Tokens of a block. Default 16.
        max_waiting: int >= 1. Maximum length of the queue. Default 64.
        max_per_user: int >= 1. Maximum number of requests of one user, waiting or running; None for no limit.
        chunk_size: int >= 1. Maximum number of prompt tokens in one call of the model (chunked prefill). Default 64.
        prompt_tokens: int >= 1. Maximum number of prompt tokens between two decoding steps: a larger value increases
            throughput, a smaller one reduces the latency between tokens. Default 256.
        quantize: None or "int8". Data type of keys and values in blocks; None for that of the model.

    Raises:
        GenerationError: arguments out of range; an encoder-decoder; a cache that is neither paged nor of fixed size.

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
        max_per_user: int | None = None,
    ) -> None:
        sizes = {
            "max_batch_size": max_batch_size,
            "num_blocks": num_blocks,
            "block_size": block_size,
            "max_waiting": max_waiting,
            "chunk_size": chunk_size,
            "prompt_tokens": prompt_tokens,
            "max_per_user": 1 if max_per_user is None else max_per_user,
        }
        _check_options(sizes, quantize)
        options = {"max_batch_size": max_batch_size, "chunk_size": chunk_size, "quantize": quantize is not None}
        # One more block, for padding.
        self.steps = model.paged_steps(num_blocks + 1, block_size, **options)
        num_blocks = num_blocks if self.steps.keeps_slots else 0
        generator = model.generator()
        self.tokenizer = generator.tokenizer
        self._reader = Generator(self.steps, generator.tokenizer)
        self.sampling = _sampling_defaults(model, generator)
        pool = CachePool(num_blocks, block_size, max_batch_size if self.steps.keeps_states else 0)
        self._scheduler = Scheduler(self.steps, pool, max_batch_size, prompt_tokens)
        self._max_waiting = max_waiting
        self._max_per_user = max_per_user
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._inbox: list[Request] = []
        self._thread: threading.Thread | None = None
        self._closing: str | None = None

    def warm_up(self) -> Engine:
        """Compiles all input shapes of the model. Call it before the first request.

        Returns:
            The engine.
        """
        self.steps.warm_up()
        return self

    def chat_prompt(self, messages: Sequence[Mapping[str, object]], *, tools: Tools | None = None) -> list[int]:
        """Returns the token ids of messages, through the chat template of the tokenizer; see `Generator.chat_prompt`."""
        return self._reader.chat_prompt(messages, tools=tools)

    def submit(
        self, prompt: PromptsLike, *, wait: float | None = 0.0, priority: int = 0, user: Hashable = None, **options: Any
    ) -> Request:
        """Submits a request for the continuation of one prompt.

        Args:
            prompt: str, or list of int.
            wait: float. Seconds to wait while the queue is full, or the user has too many requests; None for no limit.
                Default 0.
            priority: int. Requests with a larger one come first, and take the place of running ones that have a smaller one.
                Default 0.
            user: a hashable value, such as a name. Who asks. Default None, which is one user too.
            **options: `max_new_tokens`, `sampler`, `stop`, `seed`, `repetition_penalty`, `grammar` of `Generator.generate`;
                `adjustment`, a `LogitAdjustment`; and `top_logprobs` of `submit_samples`.

        Returns:
            `Request`, with `stream()`, `result()` and `cancel()`.

        Raises:
            QueueFullError: the queue is full.
            UserLimitError: the user has `max_per_user` requests.
            EngineClosedError: the engine is closed.
            PromptTooLongError: prompt and new tokens exceed the maximum length of the model, or the size of the cache.
            GenerationError: invalid arguments, as in `Generator.generate`; or a sampler that is no `TokenSampler`.
        """
        return self.submit_samples(prompt, 1, wait=wait, priority=priority, user=user, **options)[0]

    def submit_samples(
        self,
        prompt: PromptsLike,
        count: int,
        *,
        wait: float | None = 0.0,
        as_text: bool | None = None,
        priority: int = 0,
        user: Hashable = None,
        top_logprobs: int | None = None,
        **options: Any,
    ) -> list[Request]:
        """Submits requests for several continuations of one prompt, which is read once. They share its blocks.

        Args:
            prompt, wait, priority, user, options: as in `submit`.
            count: int >= 1. Number of continuations.
            as_text: bool. Whether results are text. Default None: as the prompt.
            top_logprobs: int >= 0 or None. Number of most likely tokens of `Request.logprobs`; None (default) for none.

        Returns:
            List of `Request`. With a seed their results are equal to those of `generate([prompt] * count)`.

        Raises:
            GenerationError: as in `submit`.
        """
        if not isinstance(count, int) or count < 1:
            raise GenerationError(f"count must be a positive integer. Received: {count!r}")
        if not isinstance(priority, int):
            raise GenerationError(f"priority must be an integer. Received: {priority!r}")
        if not isinstance(user, Hashable):
            raise GenerationError(f"user must be hashable. Received: {user!r}")
        sampler, prompts, decoding_requests, stops = self._reader.plan([prompt] * count, **options)
        if not isinstance(sampler, TokenSampler):
            raise GenerationError(
                f"{type(sampler).__name__} is not supported by an engine, which needs a sampler that selects one token per "
                "step. Use generate."
            )
        as_text = prompts.is_text if as_text is None else as_text
        if as_text and self.tokenizer is None:
            raise MissingTokenizerError("The model has no tokenizer: results cannot be text.")
        with self._changed:
            self._wait_for_room(count, user, wait)
            requests = [
                Request(next(self._numbers), decoding_request, sampler, stops, as_text, priority, user, top_logprobs)
                for decoding_request in decoding_requests
            ]
            for request in requests:
                request._on_cancel = self._wake
            first, *first.followers = requests
            self._inbox.append(first)
            self._start()
            self._changed.notify_all()
        return requests

    def stats(self) -> JsonObject:
        """Returns statistics of the engine.

        Returns:
            dict: "running", "waiting", "blocks", "blocks_used", "states", "states_used"; totals of "finished",
            "preemptions", "prefix_tokens" (found in the prefix cache), "tokens_read", "tokens_written", "steps"; and
            "cache_waste", the fraction of slots in used blocks that held no token, over all steps.
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

    def reset_prefix_cache(self) -> None:
        """Discards all cached keys and values. Call it after assigning weights of the model in place.

        Running requests read their tokens again with the new weights and continue. A change of the set of variables resets
        the cache without this call.
        """
        with self._changed:
            self._scheduler.is_stale = True

    @property
    def is_open(self) -> bool:
        """bool: whether the engine accepts requests."""
        return not self._closing

    def close(self, drain: bool = False) -> None:
        """Closes the engine, which accepts no more requests.

        Args:
            drain: bool. Whether to finish all requests first; otherwise they end with `EngineClosedError`. Default False.
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

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.close(drain=error is None)

    def _start(self) -> None:
        if self._closing:
            raise EngineClosedError("The engine is closed.")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="keras-transformer-engine", daemon=True)
            self._thread.start()

    def _num_waiting(self) -> int:
        return sum(1 + len(request.followers) for request in list(self._inbox)) + self._scheduler.num_waiting

    def _wait_for_room(self, count: int, user: Hashable, wait: float | None) -> None:
        """Waits until the queue has room for `count` requests of a user. The caller holds `_changed`."""
        deadline = None if wait is None else time.monotonic() + wait
        while not self._closing and (error := self._refusal(count, user)) is not None:
            left = None if deadline is None else deadline - time.monotonic()
            is_too_many = count > min(self._max_waiting, self._max_per_user or count)
            if is_too_many or (left is not None and left <= 0):
                raise error
            self._changed.wait(left)
        if self._closing:
            raise EngineClosedError("The engine is closed.")

    def _refusal(self, count: int, user: Hashable) -> QueueFullError | None:
        """Returns the error of `count` more requests of a user now, or None if there is room for them."""
        if self._num_waiting() + count > self._max_waiting:
            return QueueFullError(
                f"The queue is full: {self._num_waiting()} of at most {self._max_waiting} requests are waiting."
            )
        if self._max_per_user is not None:
            arriving = sum(1 + len(each.followers) for each in self._inbox if each.user == user)
            present = arriving + self._scheduler.num_requests(user)
            if present + count > self._max_per_user:
                return UserLimitError(
                    f"The user has {present} of at most {self._max_per_user} requests, waiting or running."
                )
        return None

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _serve(self) -> None:
        """Target of the engine thread. It ends every request, even after an error."""
        error: EngineClosedError | EngineError = EngineClosedError(
            "The engine was closed before the request was finished."
        )
        try:
            self._run()
        except BaseException as failure:  # The end of the thread: its requests would wait forever.
            error = EngineError(f"The engine failed: {type(failure).__name__}: {one_line(failure)}")
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
            with failure_to(scheduler.fail):
                scheduler.run()

    def _take_arrivals(self) -> None:
        for request in self._inbox:
            self._scheduler.add(request)
        self._inbox.clear()


def _sampling_defaults(model: ServedModel, generator: Generator) -> SamplingDefaults | None:
    """How a model is to be sampled: what its metadata say under "sampling", otherwise its `GenerationSpec`."""
    given = getattr(model, "metadata", {}).get("sampling")
    if given is None:
        return generator.spec.sampling
    try:
        return SamplingDefaults.from_dict(given)
    except (ValueError, AttributeError) as error:
        raise GenerationError(f"The metadata of the model, 'sampling': {one_line(error)}") from error


def _counted(name: str, pool: BlockPool | None) -> dict[str, int]:
    """Returns the number of all and of used blocks of a `BlockPool`; 0 for None."""
    return {name: pool.num_blocks - 1 if pool else 0, f"{name}_used": pool.num_used if pool else 0}


def _check_options(sizes: Mapping[str, object], quantize: str | None) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise GenerationError(f"{name} must be a positive integer. Received: {size!r}")
    if quantize not in (None, "int8"):
        raise GenerationError(f"quantize must be None or 'int8'. Received: {quantize!r}")
