"""One token for every character."""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Iterable
from typing import Any

from keras_transformer.text.corpus import check_size, stream_texts
from keras_transformer.text.errors import InvalidTokenizerError, SpecialTokenError, TextError
from keras_transformer.text.tokenizers.special_tokens import PLAIN, special_token_roles, tokens_in
from keras_transformer.text.tokenizers.tokenizer import Tokenizer

FILE = "characters.json"


class Characters(Tokenizer):
    """One token for every character (Unicode code point).

    The ids are those of the special tokens, then of the 256 bytes with `byte_fallback`, then of the characters.

    Args:
        characters: str or list of str. The characters in the order of their ids.
        byte_fallback: bool. Whether a character that is not among them is spelled in UTF-8 bytes, so that every text comes
            back. Otherwise it becomes the unknown token.
        special_tokens: dict of role to token. Defaults to <pad>, <unk>, <s>, </s>, <mask>.

    Returns:
        Called with texts, a dict of padded arrays: "token_ids" and "padding_mask" `(B, T)`; see `Tokenizer.__call__`.

    Raises:
        TextError: an item that is not one character, or one twice; no unknown token where one is needed.
        SpecialTokenError: a special token that is a single character.

    Example:

    >>> tokenizer = Characters("abc")
    >>> tokenizer.encode("cab?")
    [7, 5, 6, 1]
    >>> Characters("abc", byte_fallback=True).decode(Characters("abc", byte_fallback=True).encode("cab?"))
    'cab?'
    """

    kind = "characters"

    def __init__(
        self, characters: str | Iterable[str], byte_fallback: bool = False, special_tokens: dict[str, Any] | None = None
    ) -> None:
        self.characters = list(characters)
        self.byte_fallback = bool(byte_fallback)
        roles = special_token_roles(special_tokens, PLAIN)
        special = tokens_in(roles)
        self._check(special, roles)
        fallback = [f"<0x{value:02X}>" for value in range(256)] if self.byte_fallback else []
        self._first_byte = len(special)
        self._tokens = [*special, *fallback, *self.characters]
        self._ids = {token: index for index, token in enumerate(self._tokens)}
        if len(self._ids) < len(self._tokens):
            raise SpecialTokenError("A special token has the name of a byte, such as <0x0A>.")
        first = len(special) + len(fallback)
        self._ids_of_characters = {character: first + index for index, character in enumerate(self.characters)}
        self._bytes = [token.encode("utf-8") for token in self._tokens]
        self._bytes[len(special) : first] = [bytes([value]) for value in range(len(fallback))]
        super().__init__(roles)

    def _check(self, special: Any, roles: dict[str, Any]) -> None:
        for character in self.characters:
            if not isinstance(character, str) or len(character) != 1 or "\ud800" <= character <= "\udfff":
                raise TextError(f"Expected one character. Received: {character!r}")
        if len(set(self.characters)) < len(self.characters):
            twice = collections.Counter(self.characters).most_common(1)[0][0]
            raise TextError(f"The character {twice!r} is given twice.")
        for token in special:
            if len(token) == 1:
                raise SpecialTokenError(f"The special token {token!r} would be taken for a character.")
        if not self.byte_fallback and "unknown" not in roles:
            raise TextError("Without byte_fallback, Characters cannot do without an unknown token.")

    @classmethod
    def train(
        cls,
        files_or_texts: Any,
        vocabulary_size: int | None = None,
        *,
        special_tokens: dict[str, Any] | None = None,
        byte_fallback: bool = False,
    ) -> Characters:
        """Collects the characters of a text.

        Args:
            files_or_texts: path, list of paths, or iterable of str. Streamed.
            vocabulary_size: int or None. At most so many tokens, special ones and bytes included: the most frequent
                characters; None for all. They are numbered in the order of Unicode.
            special_tokens, byte_fallback: as for the class.

        Returns:
            A `Characters`.

        Raises:
            TextError: an argument out of its range.
            EmptyTextError, EncodingError, MissingTextError: the text is unfit.
        """
        others = len(tokens_in(special_token_roles(special_tokens, PLAIN))) + 256 * bool(byte_fallback)
        if vocabulary_size is not None:
            check_size(vocabulary_size, others + 1)
        counts: collections.Counter[str] = collections.Counter()
        for text in stream_texts(files_or_texts):
            counts.update(text)
        ordered = sorted(counts, key=lambda character: (-counts[character], character))
        kept = ordered if vocabulary_size is None else ordered[: vocabulary_size - others]
        return cls(sorted(kept), byte_fallback, special_tokens)

    @property
    def vocabulary_size(self) -> int:
        return len(self._tokens)

    @property
    def lossless(self) -> bool:
        """Whether there is `byte_fallback`."""
        return self.byte_fallback

    def token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def id_to_token(self, index: int) -> str:
        return self._tokens[self._check_id(index)]

    def _token_bytes(self, index: int) -> bytes:
        return self._bytes[index]

    def _encode_batch(self, texts: Any, offsets: Any) -> tuple[list, Any]:
        if offsets:
            spelled = [[self._spell(character) for character in text] for text in texts]
            ids = [list(itertools.chain.from_iterable(row)) for row in spelled]
            return ids, [[(place, place + 1) for place, part in enumerate(row) for _ in part] for row in spelled]
        return [self._encode_one(text) for text in texts], None

    def _encode_one(self, text: str):
        try:
            return [*map(self._ids_of_characters.__getitem__, text)]
        except KeyError:
            return list(itertools.chain.from_iterable(map(self._spell, text)))

    def _spell(self, character: str):
        index = self._ids_of_characters.get(character)
        if index is not None:
            return (index,)
        data = character.encode("utf-8")
        return [self._first_byte + value for value in data] if self.byte_fallback else (self.unknown_id,)

    def _graph(self) -> Any:
        from keras_transformer.text.tokenizers.graphs import CharactersGraph

        return CharactersGraph(self)

    def _options(self) -> dict[str, Any]:
        return {"byte_fallback": self.byte_fallback}

    def _files(self) -> dict[str, bytes]:
        return {FILE: json.dumps({"characters": self.characters}).encode("utf-8")}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: dict[str, Any] | None, options: dict[str, Any]
    ) -> Characters:
        try:
            characters = json.loads(files[FILE])["characters"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidTokenizerError(f"'{FILE}' cannot be read: {error}") from None
        return cls(characters, options["byte_fallback"], special_tokens)
