"""Splitting words into other pieces than the longest, at random: a model then learns how words are spelled."""

import random

_CONTINUES = "##"


class SubwordSampling:
    """Splits the words of encoded texts anew: the longest piece that fits is passed over with probability `rate`.

    WordPiece takes the longest piece of its vocabulary that the rest of a word begins with. Here each piece that fits, from
    the longest on, is taken with probability 1 - `rate`; the shortest is always taken. Train on several such splits of the
    same text, and predict with the tokenizer's own, which is that of `rate` 0.

    Args:
        tokenizer: `text.WordPiece`.
        rate: float in [0, 1). Defaults to 0.1.

    Call arguments:
        rows: sequences of token ids, as `tokenizer.encode` gives them.
        seed: int >= 0. The same seed makes the same splits.

    Returns:
        `(rows, sources)`, two lists of lists of int: the new ids, and for each the place in its old row of the first token
        of the word that it came from. Special tokens, and words with a character that is no piece, stay as they are.

    Raises:
        ValueError: the tokenizer is no WordPiece; `rate` is out of its range.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "a", "##b", "ab"])
    >>> SubwordSampling(tokenizer, rate=0.5)([tokenizer.encode("ab a ab ab")], seed=0)
    ([[4, 2, 4, 2, 3]], [[0, 1, 2, 3, 3]])

    Reference: Hiraoka, MaxMatch-Dropout: Subword Regularization for WordPiece, COLING 2022, section 3.
    """

    def __init__(self, tokenizer, rate=0.1):
        if getattr(tokenizer, "kind", None) != "wordpiece":
            raise ValueError(f"Only a WordPiece takes the longest piece. Received: {type(tokenizer).__name__}")
        if not 0 <= rate < 1:
            raise ValueError(f"rate must lie in [0, 1). Received: {rate}")
        self.rate = rate
        self._tokens = list(tokenizer.vocabulary)
        self._ids = {token: index for index, token in enumerate(self._tokens)}
        self._special_ids = set(tokenizer.special_ids)
        self._goes_on = [
            token.startswith(_CONTINUES) and token != _CONTINUES and index not in self._special_ids
            for index, token in enumerate(self._tokens)
        ]
        self._fitting = {}

    def __call__(self, rows, seed=0):
        draw = random.Random(seed).random
        results, sources = [], []
        for row in rows:
            ids, places = [], []
            for first, word in self._words(row):
                pieces = self._split(word, draw)
                ids += pieces
                places += [first] * len(pieces)
            results.append(ids)
            sources.append(places)
        return results, sources

    def _words(self, row):
        """The place of the first token, and the tokens, of each word."""
        first = 0
        for stop in range(1, len(row) + 1):
            if stop == len(row) or not self._goes_on[row[stop]]:
                yield first, row[first:stop]
                first = stop

    def _split(self, word, draw):
        key = tuple(word)
        if key not in self._fitting:
            self._fitting[key] = self._pieces(key)
        fitting = self._fitting[key]
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
        """For each place in the word the (end, id) of the pieces that begin there, longest first; None to leave it."""
        if word[0] in self._special_ids or self._goes_on[word[0]]:
            return None
        spelled = self._tokens[word[0]] + "".join(self._tokens[index][len(_CONTINUES) :] for index in word[1:])
        found = []
        for start in range(len(spelled)):
            ends = [(end, (_CONTINUES if start else "") + spelled[start:end]) for end in range(len(spelled), start, -1)]
            found.append([(end, self._ids[piece]) for end, piece in ends if piece in self._ids])
        return found if all(pieces and pieces[-1][0] == start + 1 for start, pieces in enumerate(found)) else None
