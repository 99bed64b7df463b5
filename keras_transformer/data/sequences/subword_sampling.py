"""Subword regularization: random splits of words into pieces."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.wordpiece import WordPiece

_CONTINUATION = "##"


class SubwordSampling:
    """MaxMatch-Dropout: splits words of encoded texts into random WordPiece pieces.

    WordPiece takes the longest piece of its vocabulary that matches the rest of a word. Here each matching piece, from the
    longest on, is skipped with probability `rate`; the shortest is never skipped. Train on several random splits of the
    same text, and predict with the tokenizer's own, which is that of `rate` 0.

    Args:
        tokenizer: `text.WordPiece`.
        rate: float in [0, 1). Default 0.1.

    Call arguments:
        rows: sequences of token ids, as from `tokenizer.encode`.
        seed: int >= 0. Equal seeds produce equal splits.

    Returns:
        `(rows, sources)`, two lists of lists of int: the new ids, and for each of them the index in the original row of the
        first token of its word. Special tokens, and words with a character that is not a piece, are not changed.

    Raises:
        ValueError: the tokenizer is not a WordPiece; `rate` is out of its range.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "a", "##b", "ab"])
    >>> SubwordSampling(tokenizer, rate=0.5)([tokenizer.encode("ab a ab ab")], seed=0)
    ([[4, 2, 4, 2, 3]], [[0, 1, 2, 3, 3]])

    Reference: Hiraoka, MaxMatch-Dropout: Subword Regularization for WordPiece, COLING 2022, section 3.
    """

    def __init__(self, tokenizer: WordPiece, rate: float = 0.1) -> None:
        if getattr(tokenizer, "kind", None) != "wordpiece":
            raise ValueError(f"SubwordSampling needs a WordPiece tokenizer. Received: {type(tokenizer).__name__}")
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be in [0, 1). Received: {rate}")
        self.rate = rate
        self._tokens = list(tokenizer.vocabulary)
        self._ids = {token: index for index, token in enumerate(self._tokens)}
        self._special_ids = set(tokenizer.special_ids)
        self._is_continuation = [
            token.startswith(_CONTINUATION) and token != _CONTINUATION and index not in self._special_ids
            for index, token in enumerate(self._tokens)
        ]
        self._pieces_by_word: dict[tuple[int, ...], list[list[tuple[int, int]]] | None] = {}

    def __call__(self, rows: Iterable[Sequence[int]], seed: int = 0) -> tuple[list[list[int]], list[list[int]]]:
        draw = random.Random(seed).random
        results: list[list[int]] = []
        sources: list[list[int]] = []
        for row in rows:
            ids: list[int] = []
            indices: list[int] = []
            for first, word in self._words(row):
                pieces = self._split(word, draw)
                ids += pieces
                indices += [first] * len(pieces)
            results.append(ids)
            sources.append(indices)
        return results, sources

    def _words(self, row):
        """Yields the index of the first token, and the tokens, of each word."""
        first = 0
        for stop in range(1, len(row) + 1):
            if stop == len(row) or not self._is_continuation[row[stop]]:
                yield first, row[first:stop]
                first = stop

    def _split(self, word, draw):
        key = tuple(word)
        if key not in self._pieces_by_word:
            self._pieces_by_word[key] = self._pieces(key)
        fitting = self._pieces_by_word[key]
        if fitting is None:
            return word
        start, result = 0, []
        while start < len(fitting):
            longest_first = fitting[start]
            stop, piece = next((each for each in longest_first[:-1] if draw() >= self.rate), longest_first[-1])
            result.append(piece)
            start = stop
        return result

    def _pieces(self, word):
        """Returns for each index in the word the (end, id) of its pieces, longest first; None for words to keep."""
        if word[0] in self._special_ids or self._is_continuation[word[0]]:
            return None
        spelled = self._tokens[word[0]] + "".join(self._tokens[index][len(_CONTINUATION) :] for index in word[1:])
        found = []
        for start in range(len(spelled)):
            prefix = _CONTINUATION if start else ""
            ends = [(end, prefix + spelled[start:end]) for end in range(len(spelled), start, -1)]
            found.append([(end, self._ids[piece]) for end, piece in ends if piece in self._ids])
        return found if all(pieces and pieces[-1][0] == start + 1 for start, pieces in enumerate(found)) else None
