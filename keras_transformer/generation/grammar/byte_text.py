"""Texts as the bytes of their tokens, exactly as a grammar reads them."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence


class ByteText:
    """Decodes token ids as the concatenation of their bytes. Implements what `StopSequences` needs of a tokenizer.

    The decoder of a tokenizer may drop a first space, or the spaces before punctuation; then the text would not be the one
    that the grammar has accepted.

    Args:
        tokens: list of bytes by id.
        skipped: ids without text, such as those of special tokens.

    Example:

    >>> ByteText([b"a", b" b", b"</s>"], {2}).decode([1, 0, 2])
    ' ba'
    """

    def __init__(self, tokens: Sequence[bytes], skipped: Collection[int]) -> None:
        self._tokens = [b"" if index in skipped else token for index, token in enumerate(tokens)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, with U+FFFD for invalid UTF-8."""
        return b"".join(self._tokens[index] for index in ids).decode("utf-8", "replace")

    def digits_at_the_end(self, ids: Sequence[int]) -> int:
        """The number of decimal digits in a row at the end of the text of token ids.

        Example:

        >>> ByteText([b"1", b"a23"], ()).digits_at_the_end([0, 1, 0])
        3
        """
        count = 0
        for index in reversed(ids):
            token = self._tokens[index]
            rest = token.rstrip(b"0123456789")
            count += len(token) - len(rest)
            if rest:
                break
        return count

    def stream(self) -> ByteStream:
        """A decoder of one token at a time."""
        return ByteStream(self._tokens)


class ByteStream:
    """Decodes one token at a time to complete characters.

    Args:
        tokens: list of bytes by id.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._tokens = tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, index: int) -> str:
        """Adds a token; returns the text that is complete."""
        return self._decoder.decode(self._tokens[index])

    def finish(self) -> str:
        """Returns the remaining text."""
        return self._decoder.decode(b"", final=True)
