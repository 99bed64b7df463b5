"""Tokenizers as `tf.Module`s, for `tf.data` and SavedModels.

Imported by `Tokenizer.graph` only, because it needs TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from keras_transformer.text.errors import GraphError, TextError
from keras_transformer.text.tokenizers.sentencepiece_model import SPACE
from keras_transformer.text.tokenizers.tokenizer_files import MAX_CHARACTERS_PER_WORD, PREFIX
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.bytes import Bytes
    from keras_transformer.text.tokenizers.characters import Characters
    from keras_transformer.text.tokenizers.sentencepiece import SentencePiece
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer
    from keras_transformer.text.tokenizers.wordpiece import WordPiece

# Removed by BERT's text cleaning: control, format and private use characters except tab and line ends, and U+FFFD.
_REMOVED = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\p{Cf}\p{Co}\x{fffd}]"
# Chinese characters, each of which is one word (Devlin et al. 2019, published code).
_CHINESE = (
    r"\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}\x{2a700}-\x{2b73f}\x{2b740}-\x{2b81f}\x{2b920}-\x{2ceaf}"
    r"\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}"
)
_WORD = r"[^\s\p{Z}\p{P}$+<=>^`|~" + _CHINESE + "]+"
# Matches every run of that many word characters and few others. Repetition of the exact class would need megabytes in RE2.
_LONG_RUN = r"(?s).*[^\s!-/:-@\[-`{-~\x{3000}-\x{303f}\x{4e00}-\x{9fff}\x{ff00}-\x{ff0f}]{%d}.*"
# Removed by `_REMOVED`, so they can delimit words and replace words that are too long.
_MARK, _TOO_LONG = "\x00", "\uf8ff"


class GraphTokenizer(tf.Module):
    """Base class of the modules that `Tokenizer.graph` returns.

    Args:
        tokenizer: the `Tokenizer`.

    Call arguments:
        texts: strings `(B,)` in UTF-8.
        start, end, max_length: as in `Tokenizer.encode`.

    Returns:
        `tf.RaggedTensor` int32 `(B, None)`, the same ids as `Tokenizer.encode`.

    Raises:
        TextError: `max_length` is too small for the special tokens.
        SpecialTokenError: the tokenizer has no token for `start` or `end`.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(name=f"{tokenizer.kind}_graph")
        self._opening = tokenizer.opening_id
        self._closing = tokenizer.closing_id
        self._drops_first_space = tokenizer._drops_first_space
        self._token_bytes = np.array(tokenizer._token_table(skip_special_tokens=True), dtype=object)

    def __call__(
        self, texts: Tensor | Sequence[str], start: bool = False, end: bool = False, max_length: int | None = None
    ) -> Tensor:
        before = [self._opening()] if start else []
        after = [self._closing()] if end else []
        if max_length is not None and (max_length < 1 or max_length < len(before) + len(after)):
            raise TextError(f"max_length must be at least 1 and the number of special tokens. Received: {max_length!r}")
        ids = self._tokenize(tf.convert_to_tensor(texts, tf.string))
        if max_length is not None:
            ids = ids[:, : max_length - len(before) - len(after)]
        rows = ids.nrows()
        prefix, suffix = ([tf.tile(tf.constant([each]), (rows, 1))] if each else [] for each in (before, after))
        return tf.concat([*prefix, ids, *suffix], axis=1) if start or end else ids

    def detokenize(self, ids: Tensor) -> Tensor:
        """Decodes ids to strings, as `Tokenizer.decode` does. Special tokens, including padding, are left out.

        Args:
            ids: int32 `(B, T)`, ragged or dense.

        Returns:
            Strings `(B,)`.
        """
        # The constant is created here, because a constant of one graph cannot be used in another.
        pieces = tf.gather(tf.constant(self._token_bytes, tf.string), ids)
        texts = tf.strings.reduce_join(pieces, axis=-1)
        if self._drops_first_space:
            texts = tf.strings.regex_replace(texts, "^ ", "", replace_global=False)
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")

    def _tokenize(self, texts: Tensor) -> tf.RaggedTensor:
        """Ragged int32 ids of strings `(B,)`, without special tokens."""
        raise NotImplementedError


class WordPieceGraph(GraphTokenizer):
    """`WordPiece` by the `FastBertTokenizer` of tensorflow-text.

    Texts are normalized before it, because its own normalization differs (NFKC with case folding: "ß" would become "ss",
    and a full-width comma an ASCII comma).
    """

    def __init__(self, tokenizer: WordPiece) -> None:
        super().__init__(tokenizer)
        import tensorflow_text

        self._text = tensorflow_text
        self._lowercase = tokenizer.lowercase
        self._longest = MAX_CHARACTERS_PER_WORD
        self._fast = tensorflow_text.FastBertTokenizer(
            tokenizer.vocabulary,
            suffix_indicator=PREFIX,
            # This limit is in bytes; `_replace_long_words` applies the limit in characters.
            max_bytes_per_word=4 * MAX_CHARACTERS_PER_WORD,
            token_out_type=tf.int32,
            unknown_token=tokenizer.special_tokens["unknown"],
        )

    def _tokenize(self, texts: Tensor) -> tf.RaggedTensor:
        texts = tf.strings.regex_replace(texts, _REMOVED, "")
        if self._lowercase:
            texts = self._text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
            # `lower` would convert a capital sigma at the end of a word to a final sigma.
            texts = tf.strings.regex_replace(texts, "\u03a3", "\u03c3")
            texts = tf.strings.lower(texts, encoding="utf-8")
        has_long_run = tf.reduce_any(tf.strings.regex_full_match(texts, _LONG_RUN % (self._longest + 1)))
        return self._fast.tokenize(tf.cond(has_long_run, lambda: self._replace_long_words(texts), lambda: texts))

    def _replace_long_words(self, texts: Tensor) -> Tensor:
        """Replaces each word above the character limit by a character that no vocabulary contains."""
        marked = tf.strings.regex_replace(texts, f"({_WORD})", f"{_MARK}\\1{_MARK}")
        parts = tf.strings.split(marked, _MARK)
        # The parts at odd indices are words.
        is_word = tf.math.floormod(tf.ragged.range(parts.row_lengths()).flat_values, 2) == 1
        is_long = tf.strings.length(parts.flat_values, unit="UTF8_CHAR") > self._longest
        kept = tf.where(is_word & is_long, _TOO_LONG, parts.flat_values)
        return tf.strings.reduce_join(parts.with_flat_values(kept), axis=-1)


class EncodingGraph(WordPieceGraph):
    """A `WordPieceGraph` without `detokenize`, for a tokenizer with a different decoder."""

    def detokenize(self, ids: Tensor) -> Tensor:
        raise GraphError("This tokenizer cannot decode in a TensorFlow graph.")


class SentencePieceGraph(GraphTokenizer):
    """`SentencePiece` by tensorflow-text: `FastSentencepieceTokenizer` if possible, else `SentencepieceTokenizer`.

    The fast tokenizer treats every model as a unigram model and has no byte fallback, so it is used only for unigram
    models without byte fallback.
    """

    def __init__(self, tokenizer: SentencePiece) -> None:
        super().__init__(tokenizer)
        import tensorflow_text

        fast = tokenizer.model_type == "unigram" and not tokenizer.byte_fallback
        self._space = SPACE
        self._space_ids = [tokenizer._byte_ids[value] for value in SPACE.encode()] if tokenizer.lossless else None
        if fast:
            self._tokenizer = tensorflow_text.FastSentencepieceTokenizer(tokenizer._model)
        else:
            self._tokenizer = tensorflow_text.SentencepieceTokenizer(tokenizer._model, out_type=tf.int32)

    def _tokenize(self, texts: Tensor) -> tf.RaggedTensor:
        if self._space_ids is None:
            return self._tokenizer.tokenize(texts)
        # The model treats U+2581 as a space, so it is encoded as bytes, before each part except the first.
        parts = tf.strings.split(texts, self._space)
        ids = self._tokenizer.tokenize(parts.flat_values)
        is_later = tf.tensor_scatter_nd_update(
            tf.ones(tf.shape(parts.flat_values), tf.int64),
            tf.expand_dims(parts.row_starts(), 1),
            tf.zeros([parts.nrows()], tf.int64),
        )
        lengths = is_later * len(self._space_ids)
        spaces = tf.tile(tf.constant(self._space_ids, tf.int32), tf.expand_dims(tf.reduce_sum(is_later), 0))
        ids = tf.concat([_ragged(spaces, lengths), ids], axis=1)
        return parts.with_flat_values(ids).merge_dims(1, 2)


class CharactersGraph(GraphTokenizer):
    """`Characters` by binary search in the sorted code points."""

    def __init__(self, tokenizer: Characters) -> None:
        super().__init__(tokenizer)
        codes = np.array([ord(character) for character in tokenizer.characters], "int32")
        order = np.argsort(codes)
        self._codes = np.append(codes[order], 2**31 - 1).astype("int32")
        ids = [tokenizer.token_to_id(character) for character in tokenizer.characters]
        self._ids = np.append(np.array(ids, "int32")[order], -1).astype("int32")
        self._unknown = tokenizer.unknown_id
        self._first_byte = tokenizer._first_byte if tokenizer.byte_fallback else None

    def _tokenize(self, texts: Tensor) -> tf.RaggedTensor:
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        position = tf.searchsorted(self._codes, codes.flat_values)
        found = tf.equal(tf.gather(self._codes, position), codes.flat_values)
        ids = tf.gather(self._ids, position)
        if self._first_byte is None:
            return codes.with_flat_values(tf.where(found, ids, self._unknown))
        # For each character one row: its id if it is in the vocabulary, else the ids of its bytes.
        characters = tf.strings.unicode_encode(tf.expand_dims(codes.flat_values, 1), "UTF-8")
        known = _ragged(tf.boolean_mask(ids, found), found)
        fallback = _byte_values(tf.where(found, "", characters)) + self._first_byte
        return codes.with_flat_values(tf.concat([known, fallback], axis=1)).merge_dims(1, 2)


class BytesGraph(GraphTokenizer):
    """`Bytes` by decoding the raw bytes of the strings."""

    def __init__(self, tokenizer: Bytes) -> None:
        super().__init__(tokenizer)
        self._first_byte = tokenizer._first_byte

    def _tokenize(self, texts: Tensor) -> tf.RaggedTensor:
        return _byte_values(texts) + self._first_byte


def _byte_values(texts: Tensor) -> Tensor:
    """The bytes of strings `(B,)` as a ragged int32 `(B, None)`."""
    values = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    return _ragged(tf.cast(values, tf.int32), tf.strings.length(texts, unit="BYTE"))


def _ragged(values: Tensor, lengths: Tensor) -> Tensor:
    """A `tf.RaggedTensor` of rows with these lengths."""
    return tf.RaggedTensor.from_row_lengths(values, tf.cast(lengths, tf.int64))
