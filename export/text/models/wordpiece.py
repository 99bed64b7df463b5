"""WordPiece in a graph: BERT's normalization by table, then the longest piece at every place at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.export.text.normalization import code_points as unicode
from keras_transformer.export.text.normalization.marks import mark_order
from keras_transformer.export.text.steps import (
    before,
    code_points,
    flag,
    gather,
    indices,
    look_up,
    loop,
    marked,
    next_true,
    repeated,
)
from keras_transformer.export.text.trie import Trie
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

_DROPPED = 3
_FIRST, _LATER = 0, 1  # Sets of pieces: at the start of a word, and within.


class WordPieceSteps:
    """Ids of texts by WordPiece.

    Args:
        normalizer: normalizer of the `tokenizers` library that maps each character by itself, such as `BertNormalizer`.
        cleaner: where the normalizer decomposes characters and so may change the order of marks: the normalizer without
            that and what follows; or None.
        pre_tokenizer: pre-tokenizer of the library, such as `BertPreTokenizer`.
        vocabulary: dict of token to id.
        unknown: int. Id of words that have no pieces.
        prefix: str. Prefix of pieces within a word.
        longest: int. Words of more characters are unknown.

    Call arguments:
        values: int32 `(N,)`, bytes of texts.
        rows: int32 `(N,)`, the number of the text of each.

    Returns:
        Ids and the number of the text of each, int32 `(T,)`.
    """

    def __init__(
        self,
        normalizer: Normalizer,
        cleaner: Normalizer | None,
        pre_tokenizer: PreTokenizer,
        vocabulary: Mapping[str, int],
        unknown: int,
        prefix: str,
        longest: int,
    ) -> None:
        self._unknown, self._longest, self._reorders = unknown, longest, cleaner is not None
        symbols = {character: number for number, character in enumerate(sorted(set("".join(vocabulary))), 1)}
        self._characters(_parts(normalizer, cleaner), unicode.kinds(pre_tokenizer), symbols)
        spelled = {token: [symbols[character] for character in token] for token in vocabulary}
        # A token that begins with the prefix is also the start of a word, where the text has the prefix.
        entries = [(_FIRST, spelled[token], index) for token, index in vocabulary.items()]
        size = len(prefix)
        entries += [
            (_LATER, spelled[each][size:], index) for each, index in vocabulary.items() if each.startswith(prefix)
        ]
        self._pieces = Trie(entries, 2, len(symbols) + 1)

    def _characters(self, parts: Callable[[int], list], kinds: np.ndarray, symbols: Mapping[str, int]) -> None:
        """Tables of what each code point becomes: characters, each a symbol, a kind and a combining class."""
        classes = unicode.combining_classes() if self._reorders else {}
        sequences: dict[tuple, int] = {}
        numbers = np.zeros(unicode.LIMIT, "int32")
        for code in unicode.VALID:
            items = tuple(
                (symbols.get(each, 0), int(kinds[ord(each)]), classes.get(ord(each), 0)) if each else (0, _DROPPED, 0)
                for each in parts(code)
            )
            numbers[code] = sequences.setdefault(items, len(sequences))
        counts = np.array([len(items) for items in sequences], "int32")
        self._table, self._counts = unicode.PagedTable(unicode.spread(numbers)), counts
        self._starts = (np.cumsum(counts) - counts).astype("int32")
        self._items = np.array([item for items in sequences for item in items], "int32").reshape(-1, 3).T

    def __call__(self, values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        symbols, kinds, rows = self._normalized(values, rows)
        changes = tf.logical_or(before(kinds, unicode.SPACE) != unicode.WORD, before(rows, -1) != rows)
        starts = tf.logical_or(kinds == unicode.ISOLATED, tf.logical_and(kinds == unicode.WORD, changes))
        kept = indices(kinds != unicode.SPACE)
        symbols, rows, starts = (tf.gather(each, kept) for each in (symbols, rows, starts))
        ends = next_true(starts)
        pieces, lengths = self._pieces(symbols, tf.where(starts, _FIRST, _LATER), ends)
        begins, is_unknown = self._chosen(pieces, lengths, starts, ends)
        chosen = indices(begins)
        ids = tf.where(tf.gather(is_unknown, chosen), self._unknown, tf.gather(pieces, chosen))
        return ids, tf.gather(rows, chosen)

    def _normalized(self, values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Symbol, kind and text number of each character after normalization."""
        codes, places = code_points(values)
        numbers = look_up(self._table, codes)
        item, offset = repeated(gather(self._counts, numbers))
        place = gather(self._starts, tf.gather(numbers, item)) + offset
        symbols, kinds, classes = (gather(each, place) for each in self._items)
        rows = tf.gather(tf.gather(rows, places), item)
        if not self._reorders:
            return symbols, kinds, rows
        order = mark_order(classes, rows)
        symbols, kinds = tf.gather(symbols, order), tf.gather(kinds, order)
        kept = indices(kinds != _DROPPED)
        return tf.gather(symbols, kept), tf.gather(kinds, kept), tf.gather(rows, kept)

    def _chosen(self, pieces: Tensor, lengths: Tensor, starts: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        """Where tokens begin, and whether they are the unknown token of a word."""
        size = tf.size(pieces)
        first = indices(starts)

        def step(place: Tensor, begun: Tensor) -> list[Tensor]:
            following = place + tf.gather(lengths, place)
            goes_on = tf.logical_and(following > place, following < tf.gather(ends, place))
            following = tf.gather(following, indices(goes_on))
            return [following, begun + marked(following, size)]

        _, begun = loop(lambda place, _: tf.size(place) > 0, step, [first, flag(starts)])
        word = tf.cumsum(flag(starts)) - 1
        fails = tf.logical_and(begun > 0, pieces < 0)
        too_long = tf.gather(ends, first) - first > self._longest
        failed = marked(tf.gather(word, indices(fails)), tf.size(first)) + flag(too_long)
        is_unknown = tf.gather(failed, word) > 0
        return tf.where(is_unknown, starts, begun > 0), is_unknown


def _parts(normalizer: Normalizer, cleaner: Normalizer | None) -> Callable[[int], list]:
    """A function of a code point to its characters after normalization.

    Where characters are decomposed, the empty text stands for a mark of class 0 that is removed, which keeps marks around
    it in their order.
    """
    if cleaner is None:
        return lambda code: list(normalizer.normalize_str(chr(code)))
    classes, decompose = unicode.combining_classes(), unicode.decomposition()

    def parts(code: int) -> list:
        found: list[str] = []
        for character in decompose(cleaner.normalize_str(chr(code))):
            text = normalizer.normalize_str(character)
            found += text or ([] if ord(character) in classes else [""])
        return found

    return parts
