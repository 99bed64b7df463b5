"""The tokenizers as `tf.Module`s, for `tf.data` and SavedModels.

Imported by `Tokenizer.graph` alone, for it needs TensorFlow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformer.text.errors import GraphError, TextError
from keras_transformer.text.tokenizers.sentencepiece_model import SPACE
from keras_transformer.text.tokenizers.wordpiece_vocabulary import MAX_CHARACTERS_PER_WORD, PREFIX

# What BERT's cleaning removes: control, format and private characters but for tab and line ends, and U+FFFD.
_REMOVED = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\p{Cf}\p{Co}\x{fffd}]"
# Chinese characters, each a word of its own (Devlin et al. 2019, published code).
_CHINESE = (
    r"\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}\x{2a700}-\x{2b73f}\x{2b740}-\x{2b81f}\x{2b920}-\x{2ceaf}"
    r"\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}"
)
_WORD = r"[^\s\p{Z}\p{P}$+<=>^`|~" + _CHINESE + "]+"
# What every run of so many word characters matches, and little else; counting in the exact class would take RE2 megabytes.
_LONG_RUN = r"(?s).*[^\s!-/:-@\[-`{-~\x{3000}-\x{303f}\x{4e00}-\x{9fff}\x{ff00}-\x{ff0f}]{%d}.*"
# Removed from texts above, so that they are free to mark words, and to stand for one that is too long.
_MARK, _TOO_LONG = "\x00", "\uf8ff"


class GraphTokenizer(tf.Module):
    """What the modules of all kinds share; made by `Tokenizer.graph`.

    Args:
        tokenizer: the `Tokenizer` that it must agree with.

    Call arguments:
        texts: strings `(B,)` in UTF-8.
        start, end, max_length: as in `Tokenizer.encode`.

    Returns:
        `tf.RaggedTensor` int32 `(B, None)`, the ids that `Tokenizer.encode` gives.

    Raises:
        TextError: `max_length` does not hold the special tokens.
        SpecialTokenError: the tokenizer has no token for `start` or `end`.
    """

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(name=f"{tokenizer.kind}_graph")
        self._opening = tokenizer.opening_id
        self._closing = tokenizer.closing_id
        self._drops_first_space = tokenizer._drops_first_space
        self._spelling = np.array(tokenizer._spellings(skip_special_tokens=True), dtype=object)

    def __call__(self, texts: Any, start: bool = False, end: bool = False, max_length: int | None = None):
        before = [self._opening()] if start else []
        after = [self._closing()] if end else []
        if max_length is not None and (max_length < 1 or max_length < len(before) + len(after)):
            raise TextError(f"max_length must hold the special tokens at least. Received: {max_length!r}")
        ids = self._tokenize(tf.convert_to_tensor(texts, tf.string))
        if max_length is not None:
            ids = ids[:, : max_length - len(before) - len(after)]
        rows = ids.nrows()
        parts = [tf.tile([each], (rows, 1)) if each else None for each in (before, after)]
        parts = [parts[0], ids, parts[1]]
        return tf.concat([part for part in parts if part is not None], axis=1) if start or end else ids

    def detokenize(self, ids: Any):
        """Turns ids into strings, as `Tokenizer.decode` does; special tokens, padding included, are left out.

        Args:
            ids: int32 `(B, T)`, ragged or not.

        Returns:
            Strings `(B,)`.
        """
        # Not a tensor before: a constant made in one graph is lost to the next.
        pieces = tf.gather(tf.constant(self._spelling, tf.string), ids)
        texts = tf.strings.reduce_join(pieces, axis=-1)
        if self._drops_first_space:
            texts = tf.strings.regex_replace(texts, "^ ", "", replace_global=False)
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")

    def _tokenize(self, texts: Any) -> Any:
        raise NotImplementedError


class WordPieceGraph(GraphTokenizer):
    """`WordPiece` by tensorflow-text's `FastBertTokenizer`.

    The normalization is done in front of it, for its own is another one (NFKC with case folding: "ß" would become "ss", and
    a full-width comma an ASCII one).
    """

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        import tensorflow_text

        self._text = tensorflow_text
        self._lowercase = tokenizer.lowercase
        self._longest = MAX_CHARACTERS_PER_WORD
        self._fast = tensorflow_text.FastBertTokenizer(
            tokenizer.vocabulary,
            suffix_indicator=PREFIX,
            # Counted in bytes, and too late: `_without_long_words` counts characters.
            max_bytes_per_word=4 * MAX_CHARACTERS_PER_WORD,
            token_out_type=tf.int32,
            unknown_token=tokenizer.special_tokens["unknown"],
        )

    def _tokenize(self, texts: Any):
        texts = tf.strings.regex_replace(texts, _REMOVED, "")
        if self._lowercase:
            texts = self._text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
            # Every sigma alike: lowering alone would spell the last one of a word in its final form.
            texts = tf.strings.regex_replace(texts, "\u03a3", "\u03c3")
            texts = tf.strings.lower(texts, encoding="utf-8")
        has_long_run = tf.reduce_any(tf.strings.regex_full_match(texts, _LONG_RUN % (self._longest + 1)))
        return self._fast.tokenize(tf.cond(has_long_run, lambda: self._without_long_words(texts), lambda: texts))

    def _without_long_words(self, texts: Any):
        """Puts a character that no vocabulary holds in the place of each word of more than the allowed characters."""
        marked = tf.strings.regex_replace(texts, f"({_WORD})", f"{_MARK}\\1{_MARK}")
        parts = tf.strings.split(marked, _MARK)
        # Every second part is a word.
        is_word = tf.math.floormod(tf.ragged.range(parts.row_lengths()).flat_values, 2) == 1
        is_long = tf.strings.length(parts.flat_values, unit="UTF8_CHAR") > self._longest
        kept = tf.where(is_word & is_long, _TOO_LONG, parts.flat_values)
        return tf.strings.reduce_join(parts.with_flat_values(kept), axis=-1)


class EncodingGraph(WordPieceGraph):
    """A `WordPieceGraph` for a tokenizer that decodes in another way."""

    def detokenize(self, ids: Any) -> None:
        raise GraphError("This tokenizer decodes outside the TensorFlow graph alone.")


class SentencePieceGraph(GraphTokenizer):
    """`SentencePiece` by tensorflow-text: `FastSentencepieceTokenizer` where it can, `SentencepieceTokenizer` elsewhere.

    The fast one takes every model for a unigram model and has no byte fallback, so it serves unigram models without those.
    """

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        import tensorflow_text

        fast = tokenizer.model_type == "unigram" and not tokenizer.byte_fallback
        self._space = SPACE
        self._space_ids = [tokenizer._byte_ids[value] for value in SPACE.encode()] if tokenizer.lossless else None
        if fast:
            self._tokenizer = tensorflow_text.FastSentencepieceTokenizer(tokenizer._model)
        else:
            self._tokenizer = tensorflow_text.SentencepieceTokenizer(tokenizer._model, out_type=tf.int32)

    def _tokenize(self, texts: Any):
        if self._space_ids is None:
            return self._tokenizer.tokenize(texts)
        # The model takes U+2581 for a space; it is spelled in bytes, in front of each part but the first.
        parts = tf.strings.split(texts, self._space)
        ids = self._tokenizer.tokenize(parts.flat_values)
        is_later = tf.tensor_scatter_nd_update(
            tf.ones(tf.shape(parts.flat_values), tf.int64),
            tf.expand_dims(parts.row_starts(), 1),
            tf.zeros([parts.nrows()], tf.int64),
        )
        lengths = is_later * len(self._space_ids)
        spelled = tf.tile(tf.constant(self._space_ids, tf.int32), [tf.reduce_sum(is_later)])
        ids = tf.concat([tf.RaggedTensor.from_row_lengths(spelled, lengths), ids], axis=1)
        return parts.with_flat_values(ids).merge_dims(1, 2)


class CharactersGraph(GraphTokenizer):
    """`Characters` by a search among its code points."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        codes = np.array([ord(character) for character in tokenizer.characters], "int32")
        order = np.argsort(codes)
        self._codes = np.append(codes[order], 2**31 - 1).astype("int32")
        ids = [tokenizer.token_to_id(character) for character in tokenizer.characters]
        self._ids = np.append(np.array(ids, "int32")[order], -1).astype("int32")
        self._unknown = tokenizer.unknown_id
        self._first_byte = tokenizer._first_byte if tokenizer.byte_fallback else None

    def _tokenize(self, texts: Any):
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        place = tf.searchsorted(self._codes, codes.flat_values)
        found = tf.equal(tf.gather(self._codes, place), codes.flat_values)
        ids = tf.gather(self._ids, place)
        if self._first_byte is None:
            return codes.with_flat_values(tf.where(found, ids, self._unknown))
        # Each character as the ids of its bytes, and of those only the first where it is known: its own id.
        characters = tf.strings.unicode_encode(tf.expand_dims(codes.flat_values, 1), "UTF-8")
        known = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(ids, found), tf.cast(found, tf.int64))
        spelled = _byte_values(tf.where(found, "", characters)) + self._first_byte
        return codes.with_flat_values(tf.concat([known, spelled], axis=1)).merge_dims(1, 2)


class BytesGraph(GraphTokenizer):
    """`Bytes` by the bytes of the strings."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        self._first_byte = tokenizer._first_byte

    def _tokenize(self, texts: Any):
        return _byte_values(texts) + self._first_byte


def _byte_values(texts: Any):
    """The bytes of strings `(B,)` as a ragged int32 `(B, None)`."""
    values = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    lengths = tf.strings.length(texts, unit="BYTE")
    return tf.RaggedTensor.from_row_lengths(tf.cast(values, tf.int32), tf.cast(lengths, tf.int64))
