"""The words of Unigram models in a graph, each with a mark before it in place of a space."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from keras_transformer.export.text.normalization.code_points import ISOLATED, PagedTable, kinds
from keras_transformer.export.text.normalization.code_points import SPACE as BETWEEN
from keras_transformer.export.text.steps import before, flag, indices, look_up, repeated
from keras_transformer.export.text.tokenizer_parts import parts_of, unsupported
from keras_transformer.text.hugging_face.formats import library
from keras_transformer.text.tokenizers.sentencepiece_model import SPACE
from keras_transformer.utils.types import Tensor

MARK = ord(SPACE)
Words = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class SplitWords:
    """What stands between spaces of any kind: the pre-tokenizers `WhitespaceSplit` and `Metaspace`.

    Call arguments:
        codes: int32 `(C,)`, code points.
        rows: int32 `(C,)`, the number of the text of each.

    Returns:
        The same, with a mark where each word begins.
    """

    def __init__(self) -> None:
        self._between = PagedTable((kinds(library().pre_tokenizers.WhitespaceSplit()) == BETWEEN).astype("int32"))

    def __call__(self, codes: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        is_space = look_up(self._between, codes)
        begins = tf.logical_or(before(is_space, 1) > 0, before(rows, -1) != rows)
        kept = indices(is_space == 0)
        return _marked(*(tf.gather(each, kept) for each in (codes, rows, begins)))


class SpacedWords:
    """Spaces become marks: the pre-tokenizer `Metaspace`. As `SplitWords`.

    Args:
        isolates: bool. Whether each punctuation character is a part of its own, as `Punctuation` before it makes it.
    """

    def __init__(self, isolates: bool) -> None:
        self._isolated = None
        if isolates:
            punctuation = library().pre_tokenizers.Punctuation("isolated")
            self._isolated = PagedTable((kinds(punctuation) == ISOLATED).astype("int32"))

    def __call__(self, codes: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        begins = before(rows, -1) != rows
        if self._isolated is not None:
            isolated = look_up(self._isolated, codes)
            begins = tf.logical_or(begins, isolated + before(isolated, 0) > 0)
        return _marked(tf.where(codes == ord(" "), MARK, codes), rows, begins)


def _marked(codes: Tensor, rows: Tensor, begins: Tensor) -> tuple[Tensor, Tensor]:
    """Puts a mark before each part that has none."""
    gains = flag(tf.logical_and(begins, codes != MARK))
    item, offset = repeated(1 + gains)
    is_mark = offset < tf.gather(gains, item)
    return tf.where(is_mark, MARK, tf.gather(codes, item)), tf.gather(rows, item)


def words_of(pre_tokenizer: Mapping[str, object] | None) -> Words:
    """The words of a pre-tokenizer of a `tokenizer.json`.

    Raises:
        InvalidModelError: it has other parts.
    """
    parts = parts_of(pre_tokenizer)
    names = [each["type"] for each in parts]
    isolates = names[:-1] == ["Punctuation"] and str(parts[0].get("behavior")).lower() == "isolated"
    if names[-1:] != ["Metaspace"] or not (names[:-1] in ([], ["WhitespaceSplit"]) or isolates):
        raise unsupported(f"Unigram with the pre-tokenizers {', '.join(names) or 'None'}")
    mark = parts[-1]
    if mark.get("replacement") != SPACE or mark.get("prepend_scheme") != "always" or mark.get("split") is False:
        raise unsupported("Unigram with words that do not begin with a mark")
    return SplitWords() if names[0] == "WhitespaceSplit" else SpacedWords(isolates)
