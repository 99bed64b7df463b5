"""From the bytes of tokens to text, at once or piece by piece."""

from __future__ import annotations

import codecs
from typing import Any


def join_bytes(pieces: list, drops_first_space: bool = False) -> str:
    """Text of a list of bytes, U+FFFD where they are no UTF-8; a first space is dropped if asked."""
    data = b"".join(pieces)
    if drops_first_space and data[:1] == b" ":
        data = data[1:]
    return data.decode("utf-8", "replace")


class TextStream:
    """Decodes token ids one by one and never gives half a character.

    Args:
        tokenizer: a `Tokenizer`.
        skip_special_tokens: bool.

    Example:

    >>> from keras_transformer.text import Bytes
    >>> tokenizer = Bytes()
    >>> stream = tokenizer.stream()
    >>> [stream.push(index) for index in tokenizer.encode("né")] + [stream.finish()]
    ['n', '', 'é', '']
    """

    def __init__(self, tokenizer: Any, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._drops_first_space = tokenizer._drops_first_space

    def push(self, index: int) -> str:
        """Takes the next id; returns the text that is certain now, "" while a character is unfinished."""
        data = b"".join(self._tokenizer._spelled([index], self._skip))
        if data and self._drops_first_space:
            self._drops_first_space = False
            data = data[1:] if data[:1] == b" " else data
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Returns what is left; U+FFFD for a character that was never finished."""
        return self._decoder.decode(b"", final=True)
