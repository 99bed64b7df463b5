"""Character tokenizer."""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.text.corpus import check_size, stream_texts
from keras_transformer.text.errors import InvalidTokenizerError, SpecialTokenError, TextError
from keras_transformer.text.tokenizers.special_tokens import PLAIN, special_token_roles, tokens_in
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.utils.types import JsonObject, Path, SpecialTokens

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.graphs import CharactersGraph

FILE = "characters.json"


class Characters(Tokenizer):
    """Character tokenizer: one token for each Unicode code point.

    Ids are assigned to the special tokens, then with `byte_fallback` to the 256 bytes, then to the characters.

    Args:
        characters: str or list of str. The characters in the order of their ids.
        byte_fallback: bool. Whether characters that are not in the vocabulary are encoded as UTF-8 bytes, so that the
            tokenizer is lossless. Otherwise they are encoded as the unknown token.
        special_tokens: dict of role to token. Defaults to <pad>, <unk>, <s>, </s>, <mask>.

    Returns:
        Called with texts, a dict of padded arrays: "token_ids" and "padding_mask" `(B, T)`; see `Tokenizer.__call__`.

    Raises:
        TextError: an item is not one character, or a duplicate; neither `byte_fallback` nor an unknown token.
        SpecialTokenError: a special token is a single character.

    Example:

    >>> tokenizer = Characters("abc")
    >>> tokenizer.encode("cab?")
    [7, 5, 6, 1]
    >>> Characters("abc", byte_fallback=True).decode(Characters("abc", byte_fallback=True).encode("cab?"))
    'cab?'
    """

    kind = "characters"

    def __init__(
        self, characters: str | Iterable[str], byte_fallback: bool = False, special_tokens: SpecialTokens | None = None
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
            raise SpecialTokenError("A special token has the name of a byte token, such as <0x0A>.")
        first = len(special) + len(fallback)
        self._ids_of_characters = {character: first + index for index, character in enumerate(self.characters)}
        self._bytes = [token.encode("utf-8") for token in self._tokens]
        self._bytes[len(special) : first] = [bytes([value]) for value in range(len(fallback))]
        super().__init__(roles)

    def _check(self, special: Sequence[str], roles: JsonObject) -> None:
        for character in self.characters:
            if not isinstance(character, str) or len(character) != 1 or "\ud800" <= character <= "\udfff":
                raise TextError(f"Expected one character. Received: {character!r}")
        if len(set(self.characters)) < len(self.characters):
            duplicate = collections.Counter(self.characters).most_common(1)[0][0]
            raise TextError(f"The character {duplicate!r} is a duplicate.")
        for token in special:
            if len(token) == 1:
                raise SpecialTokenError(f"The special token {token!r} is a single character.")
        if not self.byte_fallback and "unknown" not in roles:
            raise TextError("Without byte_fallback, Characters needs an unknown token.")

    @classmethod
    def train(
        cls,
        files_or_texts: Path | Iterable[Path],
        vocabulary_size: int | None = None,
        *,
        special_tokens: SpecialTokens | None = None,
        byte_fallback: bool = False,
    ) -> Characters:
        """Collects the characters of a corpus.

        Args:
            files_or_texts: path, list of paths, or iterable of str. Streamed.
            vocabulary_size: int or None. Maximum number of tokens, including special tokens and bytes: the most frequent
                characters, or None for all characters. Their ids are in the order of code points.
            special_tokens, byte_fallback: as for the class.

        Returns:
            A `Characters`.

        Raises:
            TextError: an argument is out of range.
            EmptyTextError, EncodingError, MissingTextError: the corpus is empty, not UTF-8 or missing.
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
        """Same as `byte_fallback`."""
        return self.byte_fallback

    def token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def id_to_token(self, index: int) -> str:
        return self._tokens[self._check_id(index)]

    def _token_bytes(self, index: int) -> bytes:
        return self._bytes[index]

    def _encode_batch(self, texts: Sequence[str], offsets: bool) -> tuple[list, list]:
        if offsets:
            rows = [[self._encode_character(character) for character in text] for text in texts]
            ids = [list(itertools.chain.from_iterable(row)) for row in rows]
            return ids, [[(begin, begin + 1) for begin, part in enumerate(row) for _ in part] for row in rows]
        return [self._encode_text(text) for text in texts], []

    def _encode_text(self, text: str) -> list[int]:
        try:
            return [*map(self._ids_of_characters.__getitem__, text)]
        except KeyError:
            return list(itertools.chain.from_iterable(map(self._encode_character, text)))

    def _encode_character(self, character: str) -> list[int]:
        index = self._ids_of_characters.get(character)
        if index is None:
            data = character.encode("utf-8")  # Raises for a lone surrogate.
            if self.byte_fallback:
                return [self._first_byte + value for value in data]
            index = self.unknown_id
        return [] if index is None else [index]

    def _graph(self) -> CharactersGraph:
        from keras_transformer.text.tokenizers.graphs import CharactersGraph

        return CharactersGraph(self)

    def _options(self) -> dict[str, object]:
        return {"byte_fallback": self.byte_fallback}

    def _files(self) -> dict[str, bytes]:
        return {FILE: json.dumps({"characters": self.characters}).encode("utf-8")}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: SpecialTokens | None, options: dict[str, Any]
    ) -> Characters:
        try:
            characters = json.loads(files[FILE])["characters"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidTokenizerError(f"'{FILE}' cannot be read: {error}") from None
        return cls(characters, options["byte_fallback"], special_tokens)
