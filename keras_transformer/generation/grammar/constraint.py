"""A grammar in one decoding request: the tokens that may continue each sequence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.generation.filters import EXCLUDED
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import llguidance

    from keras_transformer.generation.grammar.grammar import Grammar
    from keras_transformer.generation.grammar.token_bytes import TokenBytes


class Constraint:
    """Excludes the tokens that a grammar does not allow after each sequence of new tokens.

    Every sequence has a matcher of its own, which is copied where sequences part, such as beams, and goes back where a
    sequence is another continuation of an earlier one.

    Args:
        grammar: `Grammar`.
        vocabulary: `TokenBytes`.

    Raises:
        GrammarError: the grammar cannot be used with this vocabulary.

    Example:

    >>> from keras_transformer.generation import Regex
    >>> from keras_transformer.generation.grammar.token_bytes import TokenBytes
    >>> vocabulary = TokenBytes([b"a", b"b", b"</s>"], [2], [2], encode=lambda text: ["ab".index(each) for each in text])
    >>> Constraint(Regex("ab*"), vocabulary).apply(np.zeros((2, 3)), [[], [0]]).tolist()
    [[0.0, -inf, -inf], [-inf, 0.0, 0.0]]
    """

    def __init__(self, grammar: Grammar, vocabulary: TokenBytes) -> None:
        self._vocabulary, self._max_digits = vocabulary, grammar.max_digits
        self._start = vocabulary.matcher(grammar)
        self._matchers: dict[tuple[int, ...], llguidance.LLMatcher] = {}

    def apply(self, logits: Tensor, sequences: Iterable[Sequence[int] | None]) -> np.ndarray:
        """Returns logits in which the tokens that are not allowed are -inf.

        Args:
            logits: float `(R, V)`.
            sequences: the new tokens of each of the R rows; None for a row whose logits are not used. A row whose text has
                ended already is not changed.

        Raises:
            GrammarError: no token may follow a sequence; the message says why.
        """
        rows = [None if each is None else tuple(map(int, each)) for each in sequences]
        self._follow({each for each in rows if each is not None and self._vocabulary.end_ids.isdisjoint(each)})
        excluded = {tokens: ~self._allowed(tokens, matcher) for tokens, matcher in self._matchers.items()}
        logits = np.array(logits)
        for row, tokens in zip(logits, rows, strict=True):
            # After a text without an end token all are excluded; its logits are not used.
            if tokens in excluded and not excluded[tokens].all():
                np.copyto(row, EXCLUDED, where=excluded[tokens])
        return logits

    def _allowed(self, tokens: tuple[int, ...], matcher: llguidance.LLMatcher) -> np.ndarray:
        """The tokens that may come next, bool `(V,)`: no further digit after too many, unless nothing else may follow."""
        allowed = self._vocabulary.allowed(matcher)
        if self._max_digits is None or self._vocabulary.text.digits_at_the_end(tokens) < self._max_digits:
            return allowed
        others = allowed & ~self._vocabulary.begins_with_digit
        return others if others.any() else allowed

    def is_complete(self, tokens: Sequence[int]) -> bool:
        """Returns whether a text ends because nothing can follow it, in a model without end tokens."""
        if self._vocabulary.end_ids:
            return False
        key = tuple(map(int, tokens))
        if key not in self._matchers:
            base = self._base(key)
            matcher = self._matchers.get(base, self._start).deep_copy()
            if not self._move(matcher, base, key):
                return True
            self._matchers[key] = matcher
        return self._matchers[key].is_stopped()

    def _follow(self, wanted: set[tuple[int, ...]]) -> None:
        """Makes the matchers those of the wanted sequences."""
        followers: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for tokens in sorted(wanted):
            followers.setdefault(self._base(tokens), []).append(tokens)
        found = {}
        for base, (*others, last) in followers.items():
            matcher = self._matchers.get(base)
            if matcher is None:
                matcher = self._start.deep_copy()
            copies = [matcher.deep_copy() for _ in others]
            for tokens, each in zip((*others, last), (*copies, matcher), strict=True):
                if self._move(each, base, tokens):
                    found[tokens] = each
        self._matchers = found

    def _base(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """The sequence with a matcher that has most tokens in common with another sequence; () for none."""
        for key in (tokens, tokens[:-1]):
            if key in self._matchers:
                return key
        return max(self._matchers, key=lambda key: _common(key, tokens), default=())

    def _move(self, matcher: llguidance.LLMatcher, base: tuple[int, ...], tokens: tuple[int, ...]) -> bool:
        """Moves the matcher of a sequence to another one; returns False if that goes on after its end."""
        common = _common(base, tokens)
        if common < len(base):
            matcher.rollback(len(base) - common)
        return self._vocabulary.consume(matcher, tokens[common:])


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns the number of tokens that two sequences begin with in common."""
    if other[: len(one)] == one:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), len(other))
