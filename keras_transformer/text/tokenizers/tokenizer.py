"""Base class of the tokenizers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.text.arguments import as_list, as_rows, text_length, word_indices
from keras_transformer.text.batching import pad_batch
from keras_transformer.text.corpus import check_unicode
from keras_transformer.text.errors import GraphError, SpecialTokenError, TextError
from keras_transformer.text.pairs import encode_pair
from keras_transformer.text.tokenizers import storage
from keras_transformer.text.tokenizers.stream import TextStream, join_bytes
from keras_transformer.text.tokenizers.vocabulary import Vocabulary
from keras_transformer.utils.types import JsonObject, Path, SpecialTokens

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_transformer.generation.protocols import TextDecoder
    from keras_transformer.text.tokenizers.graphs import GraphTokenizer


class Tokenizer(Vocabulary):
    """Base class of all tokenizers: text to token ids and back.

    Subclasses implement `vocabulary_size`, `lossless`, `token_to_id`, `id_to_token`, `_encode_batch`, `_token_bytes`,
    `_files` and `_from_files`; optionally `_options` and `_graph`.

    Args:
        special_tokens: dict of role to token, as for `Vocabulary`.

    Example:

    >>> from keras_transformer.text import Bytes
    >>> tokenizer = Bytes()
    >>> isinstance(tokenizer, Tokenizer)
    True
    >>> tokenizer.decode(tokenizer.encode("cat"))
    'cat'
    >>> batch = tokenizer(["cat", "at"])
    >>> batch["token_ids"].shape, batch["padding_mask"].sum(axis=1).tolist()
    ((2, 3), [3, 2])
    """

    kind: str | None = None
    # Whether token texts start with a space that is dropped at the start of a text.
    _drops_first_space = False

    # Implemented by subclasses.

    def _encode_batch(self, texts: Sequence[str], offsets: bool) -> tuple[list, list]:
        """Returns the ids of each text and, with `offsets`, the `(begin, stop)` of each token, else an empty list."""
        raise NotImplementedError

    def _token_bytes(self, index: int) -> bytes:
        """Returns the UTF-8 bytes of a token in a text; for a special token its name."""
        raise NotImplementedError

    def _files(self) -> dict[str, bytes]:
        """Returns a dict of file name to content, which with the config define this tokenizer."""
        raise NotImplementedError

    def _options(self) -> JsonObject:
        """Returns a dict of the options in the config."""
        return {}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: SpecialTokens | None, options: dict[str, object]
    ) -> Tokenizer:
        """Creates a tokenizer from `_files`, special tokens and `_options`."""
        raise NotImplementedError

    def _graph(self) -> GraphTokenizer:
        """Returns an equivalent `tf.Module`."""
        raise GraphError(f"{type(self).__name__} cannot run in a TensorFlow graph: use map_dataset in tf.data.")

    # Text to ids.

    def encode(
        self,
        text: str | Sequence[str],
        *,
        start: bool = False,
        end: bool = False,
        max_length: int | None = None,
        allow_special_tokens: bool = False,
    ) -> Any:
        """Encodes text as token ids.

        Args:
            text: str or list of str.
            start: bool. Whether to prepend the start token, or else the classification token.
            end: bool. Whether to append the end token, or else the separator.
            max_length: int >= 1 or None. Longer sequences are truncated; the start and end tokens are kept.
            allow_special_tokens: bool. Whether the name of a special token in the text, such as "[MASK]", is encoded as
                that token. By default it is encoded as ordinary text.

        Returns:
            list of int, or a list of such lists.

        Raises:
            TextError: `text` is neither a str nor a list of str; `max_length` is too small for the special tokens.
            EncodingError: the text contains a lone surrogate.
            SpecialTokenError: the tokenizer has no token for `start` or `end`.
        """
        texts, single = as_list(text)
        process = self._post_processor(start, end, max_length)
        rows, _ = self._encode_checked(texts, False, allow_special_tokens)
        rows = [process(row) for row in rows]
        return rows[0] if single else rows

    def encode_with_offsets(
        self, text: str | Sequence[str], *, start: bool = False, end: bool = False, max_length: int | None = None
    ) -> tuple[list, list]:
        """Encodes text as token ids with character offsets.

        Args:
            text, start, end, max_length: as in `encode`.

        Returns:
            Tuple of ids and offsets. A token with the offset `(begin, stop)` encodes `text[begin:stop]`, in characters
            (code points), including a space before the word if the token has one. Special tokens have the offset
            `(0, 0)`. Tokens that together encode one character have the same offset. For a list, two lists.

        Raises:
            TextError, EncodingError, SpecialTokenError: as `encode`.
        """
        texts, single = as_list(text)
        process = self._post_processor(start, end, max_length)
        process_offsets = self._post_processor(start, end, max_length, filler=(0, 0))
        rows, offsets = self._encode_checked(texts, True, False)
        rows, offsets = [process(row) for row in rows], [process_offsets(row) for row in offsets]
        return (rows[0], offsets[0]) if single else (rows, offsets)

    def encode_words(self, words: Any) -> tuple[list, list]:
        """Encodes pre-tokenized words, for token classification.

        The ids are those of the words joined by spaces.

        Args:
            words: list of str, or a list of such lists.

        Returns:
            Tuple of ids and word indices, lists of the same length. The word index of a token is the index in `words`,
            or -1 for a token that covers only the space between two words. A word has no token if normalization removes
            it. For a list of sentences, two lists.

        Raises:
            TextError: `words` is neither a list of str nor a list of such lists.
        """
        words = list(words)
        single = all(isinstance(word, str) for word in words)
        sentences = [words] if single else [list(sentence) for sentence in words]
        for word in (word for sentence in sentences for word in sentence):
            if not isinstance(word, str):
                raise TextError(f"A word must be str. Received: {word!r}")
        rows, offsets = self._encode_checked([" ".join(sentence) for sentence in sentences], True, False)
        indices = [word_indices(*each) for each in zip(sentences, offsets, strict=True)]
        return (rows[0], indices[0]) if single else (rows, indices)

    def encode_pair(self, first: Any, second: Any, max_length: int | None = None) -> tuple[list, list]:
        """Encodes a pair of texts as one sequence: [CLS] first [SEP] second [SEP].

        A tokenizer without these tokens uses its start and end tokens instead.

        Args:
            first, second: str, or lists of str of the same length.
            max_length: int or None. Longest-first truncation: tokens are removed from the end of the longer text.

        Returns:
            Tuple of ids and segment ids (0 up to the first separator, then 1), lists of the same length. For lists of
            texts, two lists of lists.

        Raises:
            TextError: different numbers of texts; `max_length` is too small for the three special tokens.
            SpecialTokenError: the tokenizer does not have such tokens.

        Reference:
            Devlin et al. 2019, section 3; longest-first truncation as in the published code (`_truncate_seq_pair`).
        """
        return encode_pair(self, first, second, max_length)

    def __call__(
        self,
        texts: str | Sequence[str],
        *,
        padding: str | int = "longest",
        max_length: int | None = None,
        start: bool = False,
        end: bool = False,
        return_offsets: bool = False,
        return_segment_ids: bool = False,
    ) -> dict[str, np.ndarray]:
        """Encodes texts as padded arrays, the inputs of a model.

        Args:
            texts: list of str, or a str as a batch of one.
            padding: "longest", or the int length of all rows. Rows are padded on the right.
            max_length, start, end: as in `encode`.
            return_offsets: bool. Whether to return offsets as well.
            return_segment_ids: bool. Whether to return segment ids as well, which BERT and others take.

        Returns:
            dict: "token_ids" int32 `(B, T)`; "padding_mask" bool `(B, T)`, True at tokens and False at padding; with
            `return_offsets` also "offsets" int32 `(B, T, 2)`; with `return_segment_ids` also "segment_ids" int32
            `(B, T)`: those of the template for a single text, usually zeros.

        Raises:
            TextError: as `encode`; a row is longer than the int `padding`.
            SpecialTokenError: the tokenizer has no pad token.
        """
        if self.pad_id is None:
            raise SpecialTokenError(f"This {type(self).__name__} has no pad token, which a batch needs.")
        texts = [texts] if isinstance(texts, str) else texts
        frame: dict[str, Any] = {"start": start, "end": end, "max_length": max_length}
        rows, offsets = (
            self.encode_with_offsets(texts, **frame) if return_offsets else (self.encode(texts, **frame), None)
        )
        batch = self._pad(rows, padding, offsets)
        if return_segment_ids:
            batch["segment_ids"] = self._segment_ids(batch["padding_mask"], start, end)
        return batch

    def _pad(self, rows: list, padding: str | int, offsets: list | None) -> dict[str, np.ndarray]:
        return pad_batch(rows, self.pad_id, padding, offsets)

    def _segment_ids(self, padding_mask: np.ndarray, start: bool, end: bool) -> np.ndarray:
        """The segment ids, int32 `(B, T)`, of single texts with or without their start and end tokens."""
        return np.zeros(padding_mask.shape, "int32")

    def _encode_checked(self, texts: Sequence[str], offsets: bool, allow_special_tokens: bool) -> tuple[list, list]:
        if allow_special_tokens and self._ids_of_special:
            return [self._encode_with_special(text) for text in texts], []
        try:
            return self._encode_batch(texts, offsets)
        except (TypeError, RuntimeError, UnicodeEncodeError):
            # The libraries' messages do not name a lone surrogate.
            for text in texts:
                check_unicode(text)
            raise

    def _encode_with_special(self, text: str) -> list[int]:
        parts = self._special_pattern.split(text)
        # The parts at odd indices are special tokens.
        texts = [part for part in parts[::2] if part]
        encoded = iter(self._encode_checked(texts, False, False)[0])
        ids: list[int] = []
        for index, part in enumerate(parts):
            if index % 2:
                ids.append(self._ids_of_special[part])
            elif part:
                ids.extend(next(encoded))
        return ids

    def _post_processor(
        self, start: bool, end: bool, max_length: int | None, filler: tuple[int, int] | None = None
    ) -> Callable[[list], list]:
        """Returns a function that truncates a row and adds the start and end tokens, or `filler` instead of them."""
        before = [self.opening_id() if filler is None else filler] if start else []
        after = [self.closing_id() if filler is None else filler] if end else []
        if max_length is None:
            return lambda row: [*before, *row, *after] if before or after else row
        length = text_length(max_length, len(before) + len(after))
        return lambda row: [*before, *row[:length], *after]

    # Ids to text.

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> Any:
        """Decodes token ids to text.

        Invalid UTF-8, such as an incomplete character at the end of a sequence, is decoded as U+FFFD.

        Args:
            ids: list, array or tensor of int for one text, or a list, array or (ragged) tensor for several.
            skip_special_tokens: bool. Whether special tokens, including padding, are left out. Otherwise their names are
                part of the text.

        Returns:
            str, or a list of str.

        Raises:
            TextError: an id is not in the vocabulary, or `ids` are not token ids.
        """
        rows = as_rows(ids)
        if rows and not isinstance(rows[0], (int, np.integer)):
            return [self.decode(row, skip_special_tokens) for row in rows]
        return join_bytes(self._decode_tokens(rows, skip_special_tokens), self._drops_first_space)

    def _decode_tokens(self, ids: Sequence[int], skip_special_tokens: bool) -> list[bytes]:
        if skip_special_tokens not in self._decoding_tables:
            self._decoding_tables[skip_special_tokens] = self._token_table(skip_special_tokens)
        table = self._decoding_tables[skip_special_tokens]
        try:
            if ids and min(ids) >= 0:
                return [table[index] for index in ids]
        except (IndexError, TypeError):
            pass
        return [table[self._check_id(index)] for index in ids]

    def _token_table(self, skip_special_tokens: bool) -> list[bytes]:
        """Returns the bytes of all tokens, empty for special tokens if they are skipped."""
        skipped = self.special_ids if skip_special_tokens else ()
        return [b"" if index in skipped else self._token_bytes(index) for index in range(self.vocabulary_size)]

    def token_bytes(self) -> list[bytes]:
        """Returns the bytes that each token adds to a text, by id; of a special token its name, of an unused id none.

        Raises:
            TextError: the tokenizer does not decode tokens one by one.

        Example:

        >>> from keras_transformer.text import Bytes
        >>> Bytes().token_bytes()[69]
        b'A'
        """
        return self._token_table(skip_special_tokens=False)

    def stream(self, skip_special_tokens: bool = True) -> TextDecoder:
        """Creates an incremental decoder, which returns text as soon as it is complete.

        Args:
            skip_special_tokens: bool. As in `decode`.

        Returns:
            A `TextStream`. `push(id)` and `finish()` return str; their concatenation is `decode` of all ids.
        """
        return TextStream(self, skip_special_tokens)

    # TensorFlow.

    def graph(self) -> GraphTokenizer:
        """Returns the tokenizer as a `tf.Module`, for `tf.data` and SavedModels.

        Returns:
            A `tf.Module`. Called with strings `(B,)` and optionally `start`, `end` and `max_length`, it returns a
            `tf.RaggedTensor` of int32. `detokenize(ids)` decodes such a tensor to strings.

        Raises:
            GraphError: this tokenizer cannot run in a graph.
        """
        return self._graph()

    def map_dataset(
        self,
        dataset: tf.data.Dataset,
        *,
        fields: Iterable[str | int] | None = None,
        start: bool = False,
        end: bool = False,
        max_length: int | None = None,
    ) -> tf.data.Dataset:
        """Tokenizes the strings of a `tf.data.Dataset`. Supported by all tokenizers.

        Args:
            dataset: `tf.data.Dataset` of scalar strings, or of dicts or tuples that contain scalar strings.
            fields: list of the keys or indices of the strings to tokenize, or None for all strings.
            start, end, max_length: as in `encode`.

        Returns:
            `tf.data.Dataset` with int32 `(T,)` instead of each string.

        Raises:
            TextError: a field does not exist or is not a scalar string.
        """
        from keras_transformer.text.datasets import map_dataset

        return map_dataset(self, dataset, fields, start=start, end=end, max_length=max_length)

    # Files.

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self._files(), self.special_tokens, self._options())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocabulary_size={self.vocabulary_size}, special_tokens={self.special_tokens})"

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the config and the files. Saving and loading preserve it."""
        return storage.fingerprint(self.config(), self._files())

    def config(self) -> JsonObject:
        """Returns a dict of "kind", "special_tokens" and "options"."""
        return {"kind": self.kind, "special_tokens": self.special_tokens, "options": self._options()}

    def save(self, directory: Path) -> None:
        """Saves the tokenizer to a folder, for `load_tokenizer`. An existing tokenizer is replaced atomically.

        Args:
            directory: str or path.

        Raises:
            InvalidTokenizerError: `directory` exists and is not a tokenizer.
        """
        storage.save(directory, self.config(), self._files())


def _restored(
    cls: type[Tokenizer], files: dict[str, bytes], special_tokens: SpecialTokens, options: dict[str, object]
) -> Tokenizer:
    """Creates a tokenizer from its pickled state."""
    return cls._from_files(files, special_tokens, options)
