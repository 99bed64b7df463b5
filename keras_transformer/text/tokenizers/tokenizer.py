"""The interface of every tokenizer: what is the same for all kinds is written here once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformer.text.arguments import as_list, as_rows, word_indices
from keras_transformer.text.batching import pad_batch
from keras_transformer.text.corpus import check_unicode
from keras_transformer.text.errors import GraphError, SpecialTokenError, TextError
from keras_transformer.text.pairs import encode_pair
from keras_transformer.text.tokenizers import storage
from keras_transformer.text.tokenizers.stream import TextStream, join_bytes
from keras_transformer.text.tokenizers.vocabulary import Vocabulary
from keras_transformer.utils.types import Path


class Tokenizer(Vocabulary):
    """Text to token ids and back. The base of `WordPiece`, `SentencePiece`, `BytePair`, `Characters` and `Bytes`.

    A kind implements `vocabulary_size`, `token_to_id`, `id_to_token`, and the five methods below.

    Args:
        special_tokens: as for `Vocabulary`.
    """

    kind: str | None = None
    # The text of a token starts with a space that the first token of a text does not show.
    _drops_first_space = False

    # What a kind implements.

    def _encode_batch(self, texts: Any, offsets: Any) -> tuple[list, Any]:
        """Ids of each text, and with `offsets` the `(start, end)` of each token: two lists of lists (or None)."""
        raise NotImplementedError

    def _token_bytes(self, index: int) -> bytes:
        """UTF-8 bytes that the token adds to a text; a special token's own name."""
        raise NotImplementedError

    def _files(self) -> dict[str, bytes]:
        """dict of file name to the bytes that, with the config, make this tokenizer."""
        raise NotImplementedError

    def _options(self) -> dict[str, Any]:
        """dict of the options that the config carries."""
        return {}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: dict[str, Any] | None, options: dict[str, Any]
    ) -> Tokenizer:
        """The tokenizer that `_files` and `_options` describe."""
        raise NotImplementedError

    def _graph(self) -> Any:
        """A `tf.Module` that does the same inside a TensorFlow graph."""
        raise GraphError(f"{type(self).__name__} runs outside the TensorFlow graph: use map_dataset in tf.data.")

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
        """Turns text into token ids.

        Args:
            text: str or list of str.
            start: bool. Puts the start token (or else the classification token) first.
            end: bool. Puts the end token (or else the separator) last.
            max_length: int >= 1 or None. Longer results are cut; the start and the end token stay.
            allow_special_tokens: bool. Whether a special token's name in the text, such as "[MASK]", means the token. By
                default it is text like any other.

        Returns:
            list of int, or a list of such lists.

        Raises:
            TextError: `text` is neither; `max_length` leaves no room for a token.
            EncodingError: a lone surrogate in the text.
            SpecialTokenError: the tokenizer has no token for `start` or `end`.
        """
        texts, single = as_list(text)
        frame = self._frame(start, end, max_length)
        rows, _ = self._encode_checked(texts, False, allow_special_tokens)
        rows = [frame(row) for row in rows]
        return rows[0] if single else rows

    def encode_with_offsets(
        self, text: str | Sequence[str], *, start: bool = False, end: bool = False, max_length: int | None = None
    ) -> tuple[list, list]:
        """Turns text into token ids, and says which characters of it each token stands for.

        Args:
            text, start, end, max_length: as in `encode`.

        Returns:
            Pair of ids and offsets: `text[begin:stop]` (in characters, that is code points) is what the token with the
            offset `(begin, stop)` came from, a space before a word included where the token has it. Special tokens have
            `(0, 0)`. Tokens that together spell one character have the same offset. For a list, two lists.

        Raises:
            TextError, EncodingError, SpecialTokenError: as `encode`.
        """
        texts, single = as_list(text)
        frame = self._frame(start, end, max_length)
        frame_offsets = self._frame(start, end, max_length, filler=(0, 0))
        rows, offsets = self._encode_checked(texts, True, False)
        rows, offsets = [frame(row) for row in rows], [frame_offsets(row) for row in offsets]
        return (rows[0], offsets[0]) if single else (rows, offsets)

    def encode_words(self, words: Any) -> tuple[list, list]:
        """Turns words that are separated already into token ids, for tagging.

        The ids are those of the words joined by spaces.

        Args:
            words: list of str, or a list of such lists.

        Returns:
            Pair of ids and word indices, lists of the same length: the place in `words` that each token came from, -1 for
            a token that is nothing but the space between two. A word may have no token when normalization leaves none of
            it. For a list of sentences, two lists.

        Raises:
            TextError: `words` is neither.
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
        """Turns a pair of texts into one sequence: [CLS] first [SEP] second [SEP].

        A tokenizer without those tokens uses its start and end tokens in their place.

        Args:
            first, second: str, or lists of str of the same length.
            max_length: int or None. Tokens are cut from the end of whichever text is the longer at that moment.

        Returns:
            Pair of ids and segment ids (0 up to the first separator, then 1), lists of the same length; two lists of lists
            for lists.

        Raises:
            TextError: the texts differ in number; `max_length` leaves no room for the three special tokens.
            SpecialTokenError: the tokenizer lacks such tokens.

        Reference:
            Devlin et al. 2019, section 3; longest-first truncation as in its published code (`_truncate_seq_pair`).
        """
        return encode_pair(self, first, second, max_length)

    def __call__(
        self,
        texts: Any,
        *,
        padding: str | int = "longest",
        max_length: int | None = None,
        start: bool = False,
        end: bool = False,
        return_offsets: bool = False,
    ) -> dict[str, np.ndarray]:
        """Turns texts into arrays for a model.

        Args:
            texts: list of str (or a str, as a batch of one).
            padding: "longest", or the int length of every row. Padding stands at the end.
            max_length, start, end: as in `encode`.
            return_offsets: bool.

        Returns:
            dict: "token_ids" int32 `(B, T)`; "padding_mask" bool `(B, T)`, True at real tokens; with `return_offsets`
            "offsets" int32 `(B, T, 2)`.

        Raises:
            TextError: as `encode`; a row is longer than the int `padding`.
            SpecialTokenError: there is no pad token.
        """
        if self.pad_id is None:
            raise SpecialTokenError(f"This {type(self).__name__} has no pad token, so it cannot make a batch.")
        texts = [texts] if isinstance(texts, str) else texts
        options: dict[str, Any] = {"start": start, "end": end, "max_length": max_length}
        if not return_offsets:
            return pad_batch(self.encode(texts, **options), self.pad_id, padding)
        rows, offsets = self.encode_with_offsets(texts, **options)
        return pad_batch(rows, self.pad_id, padding, offsets)

    def _encode_checked(self, texts: Any, offsets: Any, allow_special_tokens: bool) -> tuple[list, Any]:
        if allow_special_tokens and self._special_pattern is not None:
            return [self._encode_with_special(text) for text in texts], None
        try:
            return self._encode_batch(texts, offsets)
        except (TypeError, RuntimeError, UnicodeEncodeError):
            # The libraries' own words for a lone surrogate do not name it.
            for text in texts:
                check_unicode(text)
            raise

    def _encode_with_special(self, text: str) -> list[int]:
        parts = self._special_pattern.split(text) if self._special_pattern else [text]
        # Every second part is a special token.
        texts = [part for part in parts[::2] if part]
        encoded = iter(self._encode_checked(texts, False, False)[0])
        ids = []
        for index, part in enumerate(parts):
            if index % 2:
                ids.append(self._ids_of_special[part])
            elif part:
                ids.extend(next(encoded))
        return ids

    def _frame(self, start: bool, end: bool, max_length: int | None, filler: Any = None):
        """A function that puts the start and end tokens (or `filler`) around a row, and cuts it."""
        before = [self.opening_id() if filler is None else filler] if start else []
        after = [self.closing_id() if filler is None else filler] if end else []
        if max_length is None:
            return lambda row: [*before, *row, *after] if before or after else row
        room = max_length - len(before) - len(after)
        if not isinstance(max_length, (int, np.integer)) or max_length < 1 or room < 0:
            raise TextError(
                f"max_length must be an int that holds the special tokens at least. Received: {max_length!r}"
            )
        return lambda row: [*before, *row[:room], *after]

    # Ids to text.

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> Any:
        """Turns token ids into text.

        Bytes that are no UTF-8, as an unfinished sequence may end with, become U+FFFD.

        Args:
            ids: ints: a list, array or tensor of one text, or a list, array or (ragged) tensor of several.
            skip_special_tokens: bool. Whether special tokens, padding included, are left out or spelled by name.

        Returns:
            str, or a list of str.

        Raises:
            TextError: an id that is not in the vocabulary, or no ids at all.
        """
        rows = as_rows(ids)
        if rows and not isinstance(rows[0], (int, np.integer)):
            return [self.decode(row, skip_special_tokens) for row in rows]
        return join_bytes(self._spelled(rows, skip_special_tokens), self._drops_first_space)

    def _spelled(self, ids: Any, skip_special_tokens: bool) -> list[bytes]:
        if skip_special_tokens not in self._tables:
            self._tables[skip_special_tokens] = self._spellings(skip_special_tokens)
        table = self._tables[skip_special_tokens]
        try:
            if ids and min(ids) >= 0:
                return [table[index] for index in ids]
        except (IndexError, TypeError):
            pass
        return [table[self._check_id(index)] for index in ids]

    def _spellings(self, skip_special_tokens: bool) -> list[bytes]:
        """The bytes of every token, none for the special ones if they are skipped."""
        skipped = self.special_ids if skip_special_tokens else ()
        return [b"" if index in skipped else self._token_bytes(index) for index in range(self.vocabulary_size)]

    def stream(self, skip_special_tokens: bool = True) -> Any:
        """A decoder that is handed ids one by one and gives the text as soon as it is certain.

        Args:
            skip_special_tokens: bool. As in `decode`.

        Returns:
            A `TextStream`: `push(id)` and `finish()` return str, and all of them together are `decode` of all ids.
        """
        return TextStream(self, skip_special_tokens)

    # TensorFlow.

    def graph(self) -> Any:
        """The tokenizer as a `tf.Module`, for `tf.data` and inside a SavedModel.

        Returns:
            A module: called with strings `(B,)` and optionally `start`, `end`, it gives a `tf.RaggedTensor` of int32;
            `detokenize(ids)` takes such a tensor back to strings.

        Raises:
            GraphError: this kind cannot run in the graph.
        """
        return self._graph()

    def map_dataset(
        self, dataset: Any, *, fields: Any = None, start: bool = False, end: bool = False, max_length: int | None = None
    ) -> Any:
        """Turns the strings of a `tf.data.Dataset` into token ids. Works for every kind.

        Args:
            dataset: of scalar strings, or of dicts or tuples that hold some.
            fields: list of the keys (or places) to turn into ids, or None for every string.
            start, end, max_length: as in `encode`.

        Returns:
            The `tf.data.Dataset` with int32 `(T,)` in the place of each string.

        Raises:
            TextError: `fields` names what is not there or is no scalar string.
        """
        from keras_transformer.text.datasets import map_dataset

        return map_dataset(self, dataset, fields, start=start, end=end, max_length=max_length)

    # Files.

    def __reduce__(self):
        return _restored, (type(self), self._files(), self.special_tokens, self._options())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocabulary_size={self.vocabulary_size}, special_tokens={self.special_tokens})"

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of all that decides what this tokenizer does. It survives saving and loading."""
        return storage.fingerprint(self.config(), self._files())

    def config(self) -> dict[str, Any]:
        """dict of the kind, the special tokens and the options."""
        return {"kind": self.kind, "special_tokens": self.special_tokens, "options": self._options()}

    def save(self, directory: Path) -> None:
        """Writes a folder that `load_tokenizer` reads. A tokenizer that lies there already is replaced in one step.

        Args:
            directory: str or path.

        Raises:
            InvalidTokenizerError: something else lies there.
        """
        storage.save(directory, self.config(), self._files())


def _restored(kind: Any, files: dict[str, bytes], special_tokens: dict[str, Any], options: dict[str, Any]):
    """Returns a tokenizer from its pickled parts."""
    return kind._from_files(files, special_tokens, options)
