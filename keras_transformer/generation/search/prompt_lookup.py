"""Proposals from the text itself: what followed its last tokens before."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.generation.search.draft_model import Draft, Proposals
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest
    from keras_transformer.generation.generation_spec import GenerationSpec
    from keras_transformer.generation.protocols import TokenSampler


@dataclasses.dataclass(frozen=True)
class PromptLookup:
    """A draft without a model, for `Speculative`: the tokens that followed the last n tokens at their latest earlier place,
    in the prompt or in what was generated.

    It costs next to nothing, and pays where texts repeat: summaries, corrections, code, JSON, conversations.

    Args:
        longest, shortest: ints >= 1: numbers of tokens that must be equal. Longer matches come first. Default 3 and 2.

    Raises:
        ValueError: a number below 1, or `shortest` above `longest`.

    Example:

    >>> from keras_transformer.generation import Speculative
    >>> Speculative(PromptLookup(), num_draft_tokens=8).draft
    PromptLookup(longest=3, shortest=2)

    Reference: Saxena, Prompt Lookup Decoding, github.com/apoorvumang/prompt-lookup-decoding, 2023; Yang et al., Inference
    with Reference, arXiv 2304.04487. Deviation: the latest earlier place instead of the first.
    """

    longest: int = 3
    shortest: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"1 <= shortest <= longest is required. Received: shortest={self.shortest}, longest={self.longest}"
            )

    def check(self, target: GenerationSpec, requests: list[DecodingRequest]) -> None:
        """Refuses nothing: a text can be looked up in for any model."""

    def of_request(self, request: DecodingRequest, sampler: TokenSampler) -> LookupDraft:
        """The draft of one request; its tokens do not depend on the sampler."""
        return LookupDraft(self, len(request.prompts))


class LookupDraft(Draft):
    """The texts of one request by their parts; has the `propose` of `draft_model.DraftModel`.

    Args:
        options: `PromptLookup`.
        rows: int. Number of texts.
    """

    def __init__(self, options: PromptLookup, rows: int) -> None:
        self._texts = [_Text(options) for _ in range(rows)]

    def propose(self, sequences: Sequence[Sequence[int]], count: int, uniforms: Tensor) -> Proposals:
        """Up to `count` tokens after each sequence, which are certain; none for any of them where none is found."""
        found = [text.after(sequence, count) for text, sequence in zip(self._texts, sequences, strict=True)]
        tokens = np.zeros((len(found), count if any(found) else 0), "int32")
        for row, each in zip(tokens, found, strict=True):
            row[: len(each)] = each
        return Proposals(tokens, None, np.array([len(each) for each in found]))


class _Text:
    """The places after all parts of one growing text, but for its end."""

    def __init__(self, options: PromptLookup) -> None:
        self._sizes = range(options.longest, options.shortest - 1, -1)
        self._places: dict[tuple[int, ...], int] = {}
        self._read = 0

    def after(self, sequence: Sequence[int], count: int) -> Sequence[int]:
        """What followed the end of a sequence before; the sequence begins with those of earlier calls."""
        for end in range(self._read + 1, len(sequence)):
            for size in self._sizes:
                if size <= end:
                    self._places[tuple(sequence[end - size : end])] = end
        self._read = max(self._read, len(sequence) - 1)
        for size in self._sizes:
            place = self._places.get(tuple(sequence[-size:])) if size <= len(sequence) else None
            if place is not None:
                return sequence[place : place + count]
        return []
