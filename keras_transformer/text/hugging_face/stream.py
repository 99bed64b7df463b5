"""Text from the ids of a tokenizer that decodes whole sequences only."""

from __future__ import annotations

from typing import Any

# No cleaning of spaces reaches further back than this.
_CLEANED = 16


class HuggingFaceStream:
    """Decodes token ids one by one; what it gives, put together, is what `decode` gives for all of them.

    With every id all of them are decoded again, `O(n^2)` in their number: a tenth of a second for a thousand.

    Args:
        tokenizer: a `HuggingFaceTokenizer`.
        skip_special_tokens: bool.

    Example:

    >>> from keras_transformer.text import BytePair, HuggingFaceTokenizer
    >>> content = BytePair.train(["the cat sat on the mat"], 270)._files()["tokenizer.json"].decode()
    >>> tokenizer = HuggingFaceTokenizer(content)
    >>> stream = tokenizer.stream()
    >>> [stream.push(index) for index in tokenizer.encode("né")] + [stream.finish()]
    ['n', '', 'é', '']
    """

    def __init__(self, tokenizer: Any, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._ids: list[int] = []
        self._given = 0
        self._in_bytes = False

    def push(self, index: int) -> str:
        """Takes the next id; returns the text that is certain now, "" while a character is unfinished."""
        self._ids.append(self._tokenizer._check_id(index))
        # The bytes of a run stand or fall together: one that fits nowhere makes all of them unreadable.
        if not (self._skip and index in self._tokenizer.special_ids):
            self._in_bytes = index in self._tokenizer._decoded.byte_ids
        if self._in_bytes:
            return ""
        text = self._text()
        # The replacement of an unfinished character, and spaces, which a decoder may take off the end.
        certain = len(text.rstrip("\ufffd \n\t"))
        if self._tokenizer.clean_up_spaces:
            certain = min(certain, len(text) - _CLEANED)
        return self._new(text, certain)

    def finish(self) -> str:
        """Returns what is left."""
        text = self._text()
        return self._new(text, len(text))

    def _text(self) -> str:
        return self._tokenizer._decoded(self._ids, self._skip)

    def _new(self, text: str, certain: int) -> str:
        if certain <= self._given:
            return ""
        new = text[self._given : certain]
        self._given = certain
        return new
