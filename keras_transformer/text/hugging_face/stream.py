"""Incremental decoding for tokenizers that decode only whole sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_transformer.text.hugging_face.tokenizer import HuggingFaceTokenizer

# Upper bound of the number of characters that `clean_up_spaces` can still change.
_CLEANED = 16


class HuggingFaceStream:
    """Incremental decoder of token ids. The concatenation of its results is `decode` of all ids.

    Each id decodes the whole sequence again, which is `O(n^2)` in the number of ids: a tenth of a second for a thousand.

    Args:
        tokenizer: a `HuggingFaceTokenizer`.
        skip_special_tokens: bool. Whether special tokens are left out.

    Example:

    >>> from keras_transformer.text import BytePair, HuggingFaceTokenizer
    >>> content = BytePair.train(["the cat sat on the mat"], 270)._files()["tokenizer.json"].decode()
    >>> tokenizer = HuggingFaceTokenizer(content)
    >>> stream = tokenizer.stream()
    >>> [stream.push(index) for index in tokenizer.encode("né")] + [stream.finish()]
    ['n', '', 'é', '']
    """

    def __init__(self, tokenizer: HuggingFaceTokenizer, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._ids: list[int] = []
        self._length = 0
        self._in_bytes = False

    def push(self, index: int) -> str:
        """Adds the next id. Returns the newly completed text, "" within an incomplete character."""
        self._ids.append(self._tokenizer._check_id(index))
        # A run of byte tokens is decoded as a whole: one invalid byte makes all of them invalid.
        if not (self._skip and index in self._tokenizer.special_ids):
            self._in_bytes = index in self._tokenizer._decoder.byte_ids
        if self._in_bytes:
            return ""
        text = self._text()
        # Not final: the replacement of an incomplete character, and spaces, which a decoder may strip.
        final = len(text.rstrip("\ufffd \n\t"))
        if self._tokenizer.clean_up_spaces:
            final = min(final, len(text) - _CLEANED)
        return self._new(text, final)

    def finish(self) -> str:
        """Returns the remaining text."""
        text = self._text()
        return self._new(text, len(text))

    def _text(self) -> str:
        return self._tokenizer._decoder(self._ids, self._skip)

    def _new(self, text: str, stop: int) -> str:
        if stop <= self._length:
            return ""
        new = text[self._length : stop]
        self._length = stop
        return new
