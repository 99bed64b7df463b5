"""Text in, text out: what `model.generate` does, in Keras and in every runtime."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.decoding_request import DecodingRequest
from keras_transformer.generation.errors import GenerationError
from keras_transformer.generation.loop import decode, pad
from keras_transformer.generation.prompts import Prompts
from keras_transformer.generation.sampler_names import resolve_sampler
from keras_transformer.generation.stop import StopSequences, check_stop

if TYPE_CHECKING:
    from keras_transformer.generation.protocols import Source

DEFAULT_NEW_TOKENS = 128


class Generator:
    """Generates with one model, in any runtime. `LanguageModel.generate` and the `generate` of a bundle are this.

    Args:
        steps: the model in its runtime, a `protocols.DecodingSteps`. It may have `generate(request, sampler)`, which runs
            the whole loop as one graph for requests where `is_plain` is True.
        tokenizer: a tokenizer of `keras_transformer.text`, or None: then prompts and results are token ids.
        start_id: int: replaces the `start_id` of `steps.spec`. Default None: that of the spec.
        end_id: int, or a list of ints: replaces the `end_id` of `steps.spec`. Default None: that of the spec.

    Attributes:
        spec: `GenerationSpec`.
    """

    def __init__(
        self,
        steps: Any,
        tokenizer: Any = None,
        start_id: int | None = None,
        end_id: int | Sequence[int] | None = None,
    ) -> None:
        self.steps = steps
        self.tokenizer = tokenizer
        given = {"start_id": start_id, "end_id": tuple(end_id) if isinstance(end_id, list) else end_id}
        self.spec = dataclasses.replace(
            steps.spec, **{name: value for name, value in given.items() if value is not None}
        )

    def generate(
        self,
        prompts: Any,
        *,
        max_new_tokens: int | None = None,
        sampler: Any = "greedy",
        stop: Any = None,
        seed: int | None = None,
        repetition_penalty: float = 1.0,
        batch_size: int | None = None,
        return_scores: bool = False,
    ) -> Any:
        """Continues prompts, or, with an encoder-decoder, answers sources.

        Prompts of different lengths may come together: each gives what it gives alone.

        Args:
            prompts: str, list of str, list of ints, or list of lists (or arrays) of ints; for a model whose encoder reads no
                text, an array of what it reads, or several; where its decoder begins with text, a dict of these under the
                name of that input, and of the text, in any of the forms before, under "token_ids".
            max_new_tokens: int >= 1; None for 128, or as many as the model can hold.
            sampler: "greedy", "random", "beam", "contrastive", "tree_search", or an instance.
            stop: str, list of ints, or a list of either: a text ends before the first of these.
            seed: int: the same texts again; None for others every time.
            repetition_penalty: float > 0. See `filters.penalize_repetition`.
            batch_size: int >= 1: so many prompts at a time; None for all at once.
            return_scores: bool. Whether to return the scores of the sampler too, such as those of beam search.

        Returns:
            For each prompt what follows it, without the end: str for text, list of ints for ids; for a single prompt
            that alone. With a sampler of several results a list of them, best first. With `return_scores` a pair of
            results and scores, both of this structure.

        Raises:
            GenerationError: what is asked for cannot be had; nothing has run.
        """
        sampler = resolve_sampler(sampler)
        prompts = self._read(prompts)
        requests = self._requests(prompts, max_new_tokens, stop, seed, repetition_penalty, batch_size)
        if return_scores and not getattr(sampler, "has_scores", False):
            raise GenerationError(f"{type(sampler).__name__} gives no scores.")
        self._check(sampler, requests)
        results: dict[int, Any] = {}
        scores: dict[int, Any] = {}
        for rows, request in requests:
            if request.is_plain and hasattr(sampler, "is_random") and hasattr(self.steps, "generate"):
                results.update(zip(rows, self.steps.generate(request, sampler), strict=True))
                continue
            search = sampler.search(request)
            for _ in decode(self.steps, request, search, request.source):
                pass
            results.update(zip(rows, search.results(), strict=True))
            if return_scores:
                scores.update(zip(rows, search.scores(), strict=True))
        stops = StopSequences(stop, self.tokenizer, self.spec.end_ids)
        texts = [self._finish(results[row], prompts, row, stops, sampler) for row in range(len(results))]
        texts = texts[0] if prompts.is_single else texts
        if not return_scores:
            return texts
        listed = [scores[row] if _is_many(sampler) else scores[row][0] for row in range(len(scores))]
        return texts, listed[0] if prompts.is_single else listed

    def stream(
        self,
        prompt: Any,
        *,
        max_new_tokens: int | None = None,
        sampler: Any = "greedy",
        stop: Any = None,
        seed: int | None = None,
        repetition_penalty: float = 1.0,
    ) -> Iterator[Any]:
        """Like `generate` for one prompt, piece by piece: together the pieces are what `generate` returns.

        Yields:
            str for a text, never half a character; int for token ids.

        Raises:
            GenerationError: as in `generate`; a sampler that knows its text only in the end.
        """
        sampler = resolve_sampler(sampler)
        prompts = self._read(prompt)
        if not prompts.is_single:
            raise GenerationError("One prompt at a time can be streamed.")
        if not getattr(sampler, "streams", True):
            raise GenerationError(f"{type(sampler).__name__} knows its text only in the end: use generate.")
        requests = self._requests(prompts, max_new_tokens, stop, seed, repetition_penalty, None)
        self._check(sampler, requests)
        ((_, request),) = requests
        search = sampler.search(request)
        steps = decode(self.steps, request, search, request.source)
        tokens = itertools.chain.from_iterable(emitted[0] for emitted in steps)
        return StopSequences(stop, self.tokenizer, self.spec.end_ids).stream(tokens, prompts.is_text, prompts.before(0))

    def plan(
        self,
        prompts: Any,
        *,
        max_new_tokens: int | None = None,
        sampler: Any = "greedy",
        stop: Any = None,
        seed: int | None = None,
        repetition_penalty: float = 1.0,
    ) -> tuple[Any, Prompts, list[DecodingRequest], StopSequences]:
        """Checks a request as `generate` does, for who runs the loop: each prompt has a request of its own.

        Args: those of `generate`.

        Returns:
            `(sampler, prompts, requests, stops)`: an instance, `Prompts`, a list of `DecodingRequest`, and `StopSequences`.

        Raises:
            GenerationError: as in `generate`.
        """
        sampler = resolve_sampler(sampler)
        prompts = self._read(prompts)
        pairs = self._requests(prompts, max_new_tokens, stop, seed, repetition_penalty, batch_size=1)
        self._check(sampler, pairs)
        requests = [request for _, request in sorted(pairs, key=lambda pair: pair[0])]
        return sampler, prompts, requests, StopSequences(stop, self.tokenizer, self.spec.end_ids)

    def _read(self, prompts: Any) -> Prompts:
        return Prompts.read(prompts, self.tokenizer, self.spec)

    def _requests(
        self,
        prompts: Any,
        max_new_tokens: Any,
        stop: Any,
        seed: int | None,
        repetition_penalty: float,
        batch_size: int | None,
    ) -> list[tuple[list[int], DecodingRequest]]:
        """Pairs of the rows that run together and their `DecodingRequest`. All is checked here."""
        if max_new_tokens is None:
            max_new_tokens = prompts.room(self.spec, DEFAULT_NEW_TOKENS)
        for name, value in (("max_new_tokens", max_new_tokens), ("batch_size", batch_size)):
            if value is not None and (not isinstance(value, (int, np.integer)) or value < 1):
                raise GenerationError(f"{name} must be a positive integer. Received: {value!r}")
        if not repetition_penalty > 0:
            raise GenerationError(f"repetition_penalty must be above 0. Received: {repetition_penalty!r}")
        check_stop(stop, self.tokenizer)
        prompts.check_room(self.spec, max_new_tokens)
        ends = None if stop is None else StopSequences(stop, self.tokenizer, self.spec.end_ids).ends
        seeds = np.random.SeedSequence(seed).spawn(len(prompts.decoder))
        # Prompts of like length together: less is computed for padding.
        order = sorted(range(len(seeds)), key=lambda row: len((prompts.source or prompts.decoder)[row]))
        requests = []
        for start in range(0, len(order), batch_size or len(order)):
            rows = order[start : start + (batch_size or len(order))]
            chosen, chosen_seeds = [prompts.decoder[row] for row in rows], [seeds[row] for row in rows]
            new_tokens, source = max_new_tokens, self._source(prompts, rows)
            own = (self.tokenizer.decode if prompts.is_text else None, self.spec.cache_is_rewindable)
            options = (chosen, new_tokens, chosen_seeds, self.spec.end_ids, ends, repetition_penalty, source)
            requests.append((rows, DecodingRequest(*options, *own)))
        return requests

    def _check(self, sampler: Any, requests: list[tuple[list[int], DecodingRequest]]) -> None:
        """Lets a sampler refuse what it cannot do with this model."""
        if hasattr(sampler, "check"):
            sampler.check(self.steps, [request for _, request in requests])

    def _source(self, prompts: Prompts, rows: list[int]) -> Source | None:
        if prompts.source is None:
            return None
        chosen = [prompts.source[row] for row in rows]
        if self.spec.source_shape is not None:
            return (_stack(chosen),)
        token_ids = pad(chosen)
        lengths = np.array([len(row) for row in chosen])
        return token_ids, np.arange(token_ids.shape[1]) < lengths[:, None]

    def _finish(self, results: Any, prompts: Any, row: int, stops: StopSequences, sampler: Any):
        texts = [stops.cut(tokens, prompts.is_text, prompts.before(row)) for tokens in results]
        return texts if _is_many(sampler) else texts[0]


def _stack(rows: Any) -> np.ndarray:
    """Features or sounds as one array; behind the shorter ones are zeros, as silence is."""
    longest = np.max([row.shape for row in rows], axis=0)
    return np.stack([np.pad(row, [(0, most) for most in longest - row.shape]) for row in rows])


def _is_many(sampler: Any) -> bool:
    return getattr(sampler, "num_results", 1) > 1
