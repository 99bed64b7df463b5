"""Decoding of token bytes to text, at once or incrementally."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer


def join_bytes(pieces: list[bytes], drops_first_space: bool = False) -> str:
    """Decodes the concatenation of `pieces`, with U+FFFD for invalid UTF-8. Optionally drops a leading space."""
    data = b"".join(pieces)
    if drops_first_space and data[:1] == b" ":
        data = data[1:]
    return data.decode("utf-8", "replace")


class TextStream:
    """Incremental decoder of token ids, which returns only complete characters.

    Args:
        tokenizer: a `Tokenizer`.
        skip_special_tokens: bool. Whether special tokens are left out.

    Example:

    >>> from keras_transformer.text import Bytes
    >>> tokenizer = Bytes()
    >>> stream = tokenizer.stream()
    >>> [stream.push(index) for index in tokenizer.encode("né")] + [stream.finish()]
    ['n', '', 'é', '']
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._drops_first_space = tokenizer._drops_first_space

    def push(self, index: int) -> str:
        """Adds the next id. Returns the newly completed text, "" within an incomplete character."""
        data = b"".join(self._tokenizer._decode_tokens([index], self._skip))
        if data and self._drops_first_space:
            self._drops_first_space = False
            data = data[1:] if data[:1] == b" " else data
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Returns the remaining text, with U+FFFD for an incomplete character."""
        return self._decoder.decode(b"", final=True)
