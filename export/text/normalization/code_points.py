"""Properties of all code points, asked of the `tokenizers` library: files have its version of Unicode."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.text.hugging_face.formats import library

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

LIMIT = 0x110000
PAGE = 256
WORD, SPACE, ISOLATED = range(3)
# Code points that are asked for. Planes 4 to 13 have no characters, nor has plane 14 beyond its tags; planes 15 and 16 are
# of private use but for their last two code points.
_UNASSIGNED = 0x40000
_TAGS, _PRIVATE = 0xE0000, (0xF0000, 0x100000)
VALID = [
    *range(0xD800),
    *range(0xE000, _UNASSIGNED + 1),
    *range(_TAGS, _TAGS + 0x1000),
    *(code for start in _PRIVATE for code in (start, start + 0xFFFE, start + 0xFFFF)),
]


class PagedTable:
    """A table of one int32 for each code point, stored as its distinct pages of 256 entries.

    Args:
        values: int array `(0x110000,)`.

    Attributes:
        pages: int32 `(P * 256,)`, the distinct pages.
        page_starts: int32 `(0x1100,)`, where the page of each block of 256 code points starts in `pages`.
    """

    def __init__(self, values: np.ndarray) -> None:
        rows = np.asarray(values, "int32").reshape(-1, PAGE)
        pages, numbers = np.unique(rows, axis=0, return_inverse=True)
        self.pages = pages.reshape(-1)
        self.page_starts = (numbers.reshape(-1) * PAGE).astype("int32")


def spread(values: np.ndarray) -> np.ndarray:
    """Fills in the entries of code points that are not in `VALID`, by those like them; changes and returns the array."""
    values[_UNASSIGNED:_TAGS] = values[_UNASSIGNED]
    values[_TAGS + 0x1000 : _PRIVATE[0]] = values[_UNASSIGNED]
    for start in _PRIVATE:
        values[start : start + 0xFFFE] = values[start]
    return values


@functools.cache
def matches(pattern: str) -> np.ndarray:
    """Whether a regular expression of the library matches each code point alone.

    Args:
        pattern: str, such as `"\\\\p{L}"`.

    Returns:
        Bool array `(0x110000,)`.

    Example:

    >>> bool(matches("[0-9]")[ord("7")])
    True
    """
    tokenizers = library()
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated", invert=False)
    found = np.zeros(LIMIT, bool)
    # Between letters that the pattern matches too, only matches of one code point are pieces of their own.
    for _, (begin, end) in split.pre_tokenize_str("".join(map(chr, VALID))):
        if end == begin + 1:
            found[VALID[begin]] = True
    # Neighbors that do not match are one piece; one alone between matches is told apart by matching it alone.
    alone = [code for code in np.flatnonzero(found) if not _matches_alone(split, chr(code))]
    found[alone] = False
    return spread(found)


def same_letters(letter: str) -> list[int]:
    """The code points that a letter of ASCII matches where case is ignored.

    Example:

    >>> [hex(code) for code in same_letters("s")]
    ['0x53', '0x73', '0x17f']
    """
    tokenizers = library()
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(f"(?i:{letter})"), "isolated", invert=False)
    # Letters with such an ASCII letter are below U+2200: U+017F and U+212A.
    return [code for code in range(0x2200) if _matches_alone(split, chr(code))]


def _matches_alone(split: PreTokenizer, character: str) -> bool:
    return len(split.pre_tokenize_str(f"{character}{character}")) == 2


def kinds(pre_tokenizer: PreTokenizer) -> np.ndarray:
    """What a pre-tokenizer makes of each code point within a word: `WORD`, `SPACE` or `ISOLATED`.

    Args:
        pre_tokenizer: a pre-tokenizer of the library that looks at single characters, such as `BertPreTokenizer`.

    Returns:
        Int8 array `(0x110000,)`.
    """
    found = np.full(LIMIT, SPACE, "int8")
    for _, (begin, end) in pre_tokenizer.pre_tokenize_str("".join(f"a{chr(code)}" for code in VALID) + "a"):
        # Characters at odd indices are those asked for.
        for index in range(begin | 1, end, 2):
            found[VALID[index // 2]] = WORD if end > begin + 1 else ISOLATED
    return spread(found)


@functools.cache
def combining_classes() -> dict[int, int]:
    """Dict of code point to a number in the order of the canonical combining classes, of those that are not 0.

    The classes follow from how the library's NFD orders marks.
    """
    decompose = decomposition()
    classes: dict[int, str] = {}
    for code in VALID:
        value = unicodedata.combining(chr(code))
        if value and unicodedata.decomposition(chr(code)) == "":
            classes.setdefault(value, chr(code))
    references = [classes[value] for value in sorted(classes)]
    lowest, highest = references[0], references[-1]
    found = {}
    for code in VALID:
        mark = chr(code)
        moved = decompose(highest + mark) == mark + highest or decompose(mark + lowest) == lowest + mark
        if moved:
            moves = [other for other in references if other != mark and decompose(mark + other) == other + mark]
            found[code] = 1 + len(moves)
    return found


def decomposition() -> Callable[[str], str]:
    """The canonical decomposition (NFD) of the library."""
    return library().normalizers.NFD().normalize_str
