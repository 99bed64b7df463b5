"""Checks of precompiled character maps, whose offsets the `tokenizers` and `sentencepiece` libraries do not check.

A map is the size of a trie in bytes (uint32), the trie (a double array of uint32 units, as of darts-clone), and the texts
that replace characters, each ended by a zero byte.
"""

from __future__ import annotations

import numpy as np

from keras_transformer.text.errors import InvalidTokenizerError

# The longest replacement of Unicode's compatibility forms has 18 characters.
_MAX_REPLACEMENT, _MAX_BYTES = 64, 2**24
_VALUE = np.uint32(1 << 31)


def check_charsmap(charsmap: bytes) -> int:
    """Verifies that every offset of a precompiled character map is in it.

    Args:
        charsmap: bytes, not empty.

    Returns:
        int: the number of characters of its longest replacement.

    Raises:
        InvalidTokenizerError: it is too large, truncated, or has an offset outside, or a replacement that is too long.

    Reference: the normalizer of sentencepiece, and Yata's darts-clone.
    """
    size = int.from_bytes(charsmap[:4], "little")
    if not 4 < len(charsmap) <= _MAX_BYTES or not 0 < size <= len(charsmap) - 4 or size % 1024:
        raise _error(f"{len(charsmap)} bytes with a trie of {size}")
    units, texts = np.frombuffer(charsmap[4 : 4 + size], "<u4"), charsmap[4 + size :]
    if texts[-1:] != b"\0":
        raise _error("the last replacement has no end")
    try:
        longest = max(map(len, texts.decode("utf-8").split("\0")))
    except UnicodeDecodeError:
        raise _error("the replacements are not UTF-8") from None
    if longest > _MAX_REPLACEMENT:
        raise _error(f"a replacement of {longest} characters, and the most are {_MAX_REPLACEMENT}")
    _check_units(units, np.frombuffer(texts, "uint8"))
    return longest


def _check_units(units: np.ndarray, texts: np.ndarray) -> None:
    children = np.arange(len(units), dtype="uint32") ^ ((units >> 10) << ((units & 512) >> 6))
    # The root is always followed, the others only if they are no values.
    is_node = (units < _VALUE) | (np.arange(len(units)) == 0)
    if (children[is_node] | 255).max() >= len(units):
        raise _error("an offset is outside of the trie")
    values = units[children[is_node & ((units >> 8) & 1 == 1)]]
    starts = values & (_VALUE - np.uint32(1))
    # A replacement begins with the first byte of a character.
    if (values < _VALUE).any() or (starts >= len(texts)).any() or ((texts[starts] & 0xC0) == 0x80).any():
        raise _error("a replacement is outside of the texts")


def _error(reason: str) -> InvalidTokenizerError:
    return InvalidTokenizerError(f"The precompiled character map is invalid: {reason}.")
