"""Text generation with one model: `model.generate`, in Keras and in every runtime."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.generation.chat.template import ChatTemplate
from keras_transformer.generation.decoding_request import DecodingRequest
from keras_transformer.generation.errors import ChatTemplateError, GenerationError, MissingTokenizerError
from keras_transformer.generation.grammar.grammar import Grammar
from keras_transformer.generation.grammar.model_grammars import ModelGrammars
from keras_transformer.generation.loop import decode, pad
from keras_transformer.generation.prompts import Prompts
from keras_transformer.generation.protocols import CompiledLoop, Sampler, ScoredSearch, TokenSampler
from keras_transformer.generation.samplers import resolve_sampler
from keras_transformer.generation.stop import StopSequences, check_stop
from keras_transformer.utils.types import ArrayLike, JsonObject

if TYPE_CHECKING:
    from keras_transformer.generation.adjustment import LogitAdjustment
    from keras_transformer.generation.chat.conversation import Conversation
    from keras_transformer.generation.chat.messages import MessagesLike, Tools
    from keras_transformer.generation.prompts import PromptsLike
    from keras_transformer.generation.protocols import Source
    from keras_transformer.generation.stop import StopLike

DEFAULT_NEW_TOKENS = 128


class Generator:
    """Generates text with one model, in any runtime.

    `LanguageModel.generate` and the `generate` of a bundle call it.

    Args:
        steps: the model in its runtime, a `protocols.DecodingSteps`. It may have `generate(request, sampler)`, which runs
            the whole loop as one graph for requests where `is_plain` is True.
        tokenizer: a tokenizer of `keras_transformer.text`; None if prompts and results are token ids.
        start_id: int. Replaces `steps.spec.start_id`; None (default) keeps it.
        end_id: int or list of int. Replaces `steps.spec.end_id`; None (default) keeps it.

    Attributes:
        spec: `GenerationSpec`.

    Example:

    >>> from keras_transformer import models, tasks
    >>> model = tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=10))
    >>> len(model.generator().generate([1, 2], max_new_tokens=3))
    3
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
        self._template: ChatTemplate | None = None
        self._grammars = ModelGrammars(tokenizer, self.spec)

    def generate(
        self,
        prompts: PromptsLike,
        *,
        max_new_tokens: int | None = None,
        sampler: str | Sampler = "greedy",
        stop: StopLike = None,
        seed: int | None = None,
        repetition_penalty: float = 1.0,
        batch_size: int | None = None,
        grammar: Grammar | None = None,
        return_scores: bool = False,
    ) -> Any:
        """Generates continuations of prompts, or, with an encoder-decoder, outputs for sources.

        Prompts may have different lengths. The result of each does not depend on the other prompts.

        Args:
            prompts: str, list of str, list of int, or list of lists (or arrays) of int. If the source of the model is not
                text: an array or a list of arrays. If its decoder also takes prompts: a dict with the source under the name
                of that input, and the decoder prompts, in any of the forms above, under "token_ids".
            max_new_tokens: int >= 1. Default None: 128, or the number that fits the maximum length if that is smaller.
            sampler: "greedy" (default), "random", "beam", "contrastive", "tree_search", or a `protocols.Sampler`.
            stop: str, list of int, or a list of either. A result ends before the first stop sequence.
            seed: int. The same seed gives the same results; None (default) for a random seed.
            repetition_penalty: float > 0. See `filters.penalize_repetition`. Default 1.0, for none.
            batch_size: int >= 1. Number of prompts in a batch; None (default) for all.
            grammar: `JsonSchema`, `Regex` or `Lark`: results are its texts, if `max_new_tokens` suffice. Default None.
            return_scores: bool. Whether to return scores as well, with a sampler such as beam search. Default False.

        Returns:
            For each prompt its continuation, without the end token or stop sequence: str for text, list of int for token
            ids; for a single prompt one result, not a list. If the sampler has several results, a list of them, best first,
            in place of each. With `return_scores`, a pair of results and scores of the same structure.

        Raises:
            GenerationError: invalid prompts or arguments, or an unsupported sampler; the model has not run.
        """
        sampler = resolve_sampler(sampler)
        parsed = self._parse(prompts)
        requests = self._requests(parsed, max_new_tokens, stop, seed, repetition_penalty, batch_size, grammar)
        if return_scores and not sampler.has_scores:
            raise GenerationError(f"{type(sampler).__name__} has no scores.")
        self._check(sampler, requests)
        results: dict[int, list[list[int]]] = {}
        scores: dict[int, list[float]] = {}
        for rows, request in requests:
            if request.is_plain and isinstance(sampler, TokenSampler) and isinstance(self.steps, CompiledLoop):
                results.update(zip(rows, self.steps.generate(request, sampler), strict=True))
                continue
            search = sampler.search(request)
            for _ in decode(self.steps, request, search, request.source):
                pass
            results.update(zip(rows, search.results(), strict=True))
            if return_scores and isinstance(search, ScoredSearch):
                scores.update(zip(rows, search.scores(), strict=True))
        stops = self._stops(stop, grammar)
        texts = [self._finish(results[row], parsed, row, stops, sampler) for row in range(len(results))]
        found = texts[0] if parsed.is_single else texts
        if not return_scores:
            return found
        listed = [scores[row] if sampler.num_results > 1 else scores[row][0] for row in range(len(scores))]
        return found, listed[0] if parsed.is_single else listed

    def stream(
        self,
        prompt: PromptsLike,
        *,
        max_new_tokens: int | None = None,
        sampler: str | Sampler = "greedy",
        stop: StopLike = None,
        seed: int | None = None,
        repetition_penalty: float = 1.0,
        grammar: Grammar | None = None,
    ) -> Iterator[Any]:
        """Generates the continuation of one prompt as a stream.

        The concatenated pieces are equal to the result of `generate`.

        Args: those of `generate`, without `batch_size` and `return_scores`.

        Yields:
            str of complete characters for text; int for token ids.

        Raises:
            GenerationError: as in `generate`; several prompts; a sampler without streaming, such as beam search.
        """
        sampler = resolve_sampler(sampler)
        prompts = self._parse(prompt)
        if not prompts.is_single:
            raise GenerationError("One prompt at a time can be streamed.")
        if not sampler.streams:
            raise GenerationError(f"{type(sampler).__name__} has results only in the end. Use generate.")
        requests = self._requests(prompts, max_new_tokens, stop, seed, repetition_penalty, None, grammar)
        self._check(sampler, requests)
        ((_, request),) = requests
        search = sampler.search(request)
        steps = decode(self.steps, request, search, request.source)
        tokens = itertools.chain.from_iterable(emitted[0] for emitted in steps)
        return self._stops(stop, grammar).stream(tokens, prompts.is_text, prompts.prefix(0))

    def chat(
        self,
        messages: MessagesLike,
        *,
        tools: Tools | None = None,
        template: JsonObject | None = None,
        **options: Any,
    ) -> Any:
        """Answers the last of some messages, through the chat template of the tokenizer.

        Args:
            messages: str for one message of the user, or a list of dicts with "role" ("system", "user", "assistant",
                "tool") and "content".
            tools: list of dicts: the JSON schemas of the functions that the model may call. Default None.
            template: dict of what else the template reads, such as `{"enable_thinking": False}`. Default None.
            **options: those of `generate`.

        Returns:
            str: the answer, without the end token; or what `generate` returns with these options.

        Raises:
            ChatMessageError: a message has no role or content.
            ChatTemplateError: the tokenizer has no chat template, or it refuses the messages.
            GenerationError: as of `generate`.
        """
        prompt = Prompts.of_tokens(self.chat_prompt(messages, tools=tools, template=template))
        return self.generate(prompt, **options)

    def stream_chat(
        self,
        messages: MessagesLike,
        *,
        tools: Tools | None = None,
        template: JsonObject | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """Answers the last of some messages as a stream: the pieces of what `chat` returns.

        Args: those of `chat`, with the options of `stream`.

        Yields:
            str of complete characters.

        Raises:
            GenerationError: as of `chat`.
        """
        prompt = Prompts.of_tokens(self.chat_prompt(messages, tools=tools, template=template))
        return self.stream(prompt, **options)

    def conversation(
        self,
        messages: Sequence[Mapping[str, object]] = (),
        *,
        tools: Tools | None = None,
        template: JsonObject | None = None,
    ) -> Conversation:
        """Begins a `Conversation`, which keeps its cache from turn to turn.

        Args:
            messages: list of dicts to begin with, such as one of the role "system". Default none.
            tools, template: as of `chat`.

        Raises:
            GenerationError: as of `chat`; or the model is an encoder-decoder.
        """
        from keras_transformer.generation.chat.conversation import Conversation

        return Conversation(self, messages, tools=tools, template=template)

    def chat_template(self) -> ChatTemplate:
        """The chat template of the tokenizer.

        Raises:
            ChatTemplateError: there is none, or an invalid one; or the model is an encoder-decoder.
            MissingTokenizerError: there is no tokenizer.
        """
        if self.tokenizer is None:
            raise MissingTokenizerError("A chat needs a tokenizer with a chat template. The model has no tokenizer.")
        if self.spec.is_encoder_decoder or self.spec.source_shape is not None:
            raise ChatTemplateError("A model with an encoder has no chat: use generate.")
        if self._template is None or self._template.source != getattr(self.tokenizer, "chat_template", None):
            self._template = ChatTemplate.of(self.tokenizer)
        return self._template

    def with_steps(self, steps: Any) -> Generator:
        """A copy of the generator that runs other steps of the same model."""
        other = copy.copy(self)
        other.steps = steps
        return other

    def chat_prompt(
        self,
        messages: MessagesLike,
        *,
        tools: Tools | None = None,
        template: JsonObject | None = None,
    ) -> list[int]:
        """The token ids of messages, up to where the answer begins.

        Args:
            messages, tools, template: as of `chat`.

        Raises:
            GenerationError: as of `chat`.
        """
        text = self.chat_template().render(messages, tools=tools, **(template or {}))
        return self.tokenizer.encode(text, allow_special_tokens=True)

    def plan(
        self,
        prompts: PromptsLike,
        *,
        max_new_tokens: int | None = None,
        sampler: str | Sampler = "greedy",
        stop: StopLike = None,
        seed: int | None = None,
        repetition_penalty: float = 1.0,
        grammar: Grammar | None = None,
        adjustment: LogitAdjustment | None = None,
    ) -> tuple[Sampler, Prompts, list[DecodingRequest], StopSequences]:
        """Validates arguments as `generate` does, and returns one `DecodingRequest` for each prompt without running it.

        Args: those of `generate`, and `adjustment`, a `LogitAdjustment` of logits; None (default) for none.

        Returns:
            `(sampler, prompts, requests, stops)`: `Sampler`, `Prompts`, list of `DecodingRequest`, `StopSequences`.

        Raises:
            GenerationError: as in `generate`.
        """
        sampler = resolve_sampler(sampler)
        parsed = self._parse(prompts)
        if adjustment is not None:
            adjustment.check(self.spec.vocabulary_size)
        pairs = self._requests(parsed, max_new_tokens, stop, seed, repetition_penalty, 1, grammar)
        pairs = [(rows, dataclasses.replace(request, adjustment=adjustment)) for rows, request in pairs]
        self._check(sampler, pairs)
        requests = [request for _, request in sorted(pairs, key=lambda pair: pair[0])]
        return sampler, parsed, requests, self._stops(stop, grammar)

    def _parse(self, prompts: PromptsLike) -> Prompts:
        if isinstance(prompts, Prompts):
            return prompts
        return Prompts.read(prompts, self.tokenizer, self.spec)

    def _requests(
        self,
        prompts: Prompts,
        max_new_tokens: int | None,
        stop: StopLike,
        seed: int | None,
        repetition_penalty: float,
        batch_size: int | None,
        grammar: Grammar | None,
    ) -> list[tuple[list[int], DecodingRequest]]:
        """Validates the arguments and returns a pair of prompt indices and `DecodingRequest` for each batch."""
        if max_new_tokens is None:
            max_new_tokens = prompts.available_tokens(self.spec, DEFAULT_NEW_TOKENS)
        _check_counts(max_new_tokens=max_new_tokens, batch_size=batch_size)
        if not repetition_penalty > 0:
            raise GenerationError(f"repetition_penalty must be above 0. Received: {repetition_penalty!r}")
        check_stop(stop, self.tokenizer)
        self._grammars.check(grammar, stop)
        prompts.check_ids(self.spec)
        prompts.check_lengths(self.spec, max_new_tokens)
        stops = self._stops(stop, grammar)
        seeds = np.random.SeedSequence(seed).spawn(len(prompts.decoder))
        # Batches of prompts of similar length need less padding.
        order = sorted(range(len(seeds)), key=lambda row: len((prompts.source or prompts.decoder)[row]))
        requests = []
        for start in range(0, len(order), batch_size or len(order)):
            rows = order[start : start + (batch_size or len(order))]
            request = DecodingRequest(
                [prompts.decoder[row] for row in rows],
                max_new_tokens,
                [seeds[row] for row in rows],
                end_ids=self.spec.end_ids,
                ends=None if stop is None else stops.ends,
                repetition_penalty=repetition_penalty,
                source=self._source(prompts, rows),
                decode=stops.tokenizer.decode if prompts.is_text else None,
                cache_is_rewindable=self.spec.cache_is_rewindable,
                constraint=self._grammars.constraint(grammar),
            )
            requests.append((rows, request))
        return requests

    def _stops(self, stop: StopLike, grammar: Grammar | None) -> StopSequences:
        return StopSequences(stop, self._grammars.decoder(grammar), self.spec.end_ids)

    def _check(self, sampler: Sampler, requests: list[tuple[list[int], DecodingRequest]]) -> None:
        sampler.check(self.steps, [request for _, request in requests])

    def _source(self, prompts: Prompts, rows: list[int]) -> Source | None:
        if prompts.source is None:
            return None
        chosen = [prompts.source[row] for row in rows]
        if self.spec.source_shape is not None:
            grids = [] if prompts.grids is None else [_stack([prompts.grids[row] for row in rows])]
            return (_stack(chosen), *grids)
        token_ids = pad(chosen)
        lengths = np.array([len(row) for row in chosen])
        return token_ids, np.arange(token_ids.shape[1]) < lengths[:, None]

    def _finish(
        self, results: list[list[int]], prompts: Prompts, row: int, stops: StopSequences, sampler: Sampler
    ) -> Any:
        texts = [stops.cut(tokens, prompts.is_text, prompts.prefix(row)) for tokens in results]
        return texts if sampler.num_results > 1 else texts[0]


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (not isinstance(value, (int, np.integer)) or value < 1):
            raise GenerationError(f"{name} must be a positive integer. Received: {value!r}")


def _stack(rows: ArrayLike) -> np.ndarray:
    """Returns features or sounds as one array, padded with zeros at the end."""
    longest = np.max([row.shape for row in rows], axis=0)
    return np.stack([np.pad(row, [(0, missing) for missing in longest - row.shape]) for row in rows])
