"""Character tokenizer of speech synthesis."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from keras_transformer.text.corpus import check_unicode
from keras_transformer.text.errors import InvalidTokenizerError, SpellingError, TextError
from keras_transformer.text.tokenizers.special_tokens import special_token_roles
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.utils.types import SpecialTokens

FILE = "vocabulary.json"
_SPELLINGS = {
    "phonemes": "phonemes, such as those of the phonemizer package with espeak-ng (pip install phonemizer)",
    "roman": "Roman letters, such as those of uroman (pip install uroman)",
}
# A character with the part of the text that it stands for.
_Spelled = list[tuple[str, int, int]]


class InterspersedCharacters(Tokenizer):
    """Character tokenizer of VITS: a token for each character, with a blank token before, between and after them.

    Args:
        vocabulary: dict of token to id, from 0 on without gaps. Tokens of several characters are special tokens. The blank
            is the token with the id 0, which may be a letter, as in MMS-TTS.
        special_tokens: dict of role to token, as for `Vocabulary`. Defaults to the pad token, the one with the id 0. A
            special token of one character is a token wherever it is in a text, without blanks around it.
        blanks: bool. Whether there are blanks. Default True.
        normalize: bool. Whether letters are lowercased, unless the vocabulary has their upper case, and characters that are
            not in the vocabulary are left out. Otherwise these are the unknown token, or left out without one. Default True.
        spelling: "phonemes" or "roman" for a vocabulary of phonemes or of Roman letters, for which texts are spelled by
            `speller`; None for texts as they are. With "roman", texts of ASCII characters are not changed; phonemes are not
            normalized further, and of several spaces one is left.
        replacements: dict of character to character, which are replaced first. None for none.

    Attributes:
        speller: function of a text to its spelling, or None, which raises an error for texts that need one. It is not saved
            with the tokenizer. Set it to `str` for texts that are spelled already.

    Returns:
        Called with texts, a dict of padded arrays: "token_ids" and "padding_mask" `(B, T)`; see `Tokenizer.__call__`.

    Raises:
        InvalidTokenizerError: ids that are not 0 to n - 1.
        TextError: an unknown `spelling`.
        SpellingError: in a call, a text that needs a `speller`.

    Example:

    >>> tokenizer = InterspersedCharacters({"_": 0, "a": 1, "b": 2, " ": 3})
    >>> tokenizer.encode("A b!")
    [0, 1, 0, 3, 0, 2, 0]
    >>> tokenizer.decode([0, 1, 0, 3, 0, 2, 0])
    'a b'
    >>> phonemes = InterspersedCharacters({"_": 0, "ə": 1, "h": 2}, spelling="phonemes")
    >>> phonemes.speller = str
    >>> phonemes.encode("hə")
    [0, 2, 0, 1, 0]

    Reference: Kim et al., VITS, arXiv 2106.06103, section 3.1; as `VitsTokenizer` of transformers. `decode` leaves out the
    blank, and with it a letter that is the blank.
    """

    kind = "interspersed_characters"

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        special_tokens: SpecialTokens | None = None,
        blanks: bool = True,
        normalize: bool = True,
        spelling: str | None = None,
        replacements: Mapping[str, str] | None = None,
    ) -> None:
        self.vocabulary = dict(vocabulary)
        if sorted(self.vocabulary.values()) != list(range(len(self.vocabulary))) or not self.vocabulary:
            raise InvalidTokenizerError("The ids of a vocabulary must be 0 to n - 1, each for one token.")
        if spelling is not None and spelling not in _SPELLINGS:
            raise TextError(
                f"spelling must be one of {', '.join(map(repr, _SPELLINGS))}, or None. Received: {spelling!r}"
            )
        self._tokens = sorted(self.vocabulary, key=self.vocabulary.__getitem__)
        self.blanks = bool(blanks)
        self.normalize = bool(normalize)
        self.spelling = spelling
        self.replacements = dict(replacements or {})
        self.speller: Callable[[str], str] | None = None
        # In the order of the ids: of two tokens that fit, the first is kept.
        self._kept = re.compile("|".join(map(re.escape, self._tokens)) + r"|[\s\S]")
        super().__init__(special_token_roles(special_tokens, {"pad": self._tokens[0]}))
        self._letters = {token for token in self._ids_of_special if len(token) == 1}
        # Of special tokens that are no letters, which a text has only when asked.
        names = sorted(set(self._ids_of_special) - self._letters, key=len, reverse=True)
        self._special_pattern = re.compile("(" + ("|".join(map(re.escape, names)) or "(?!)") + ")")

    @property
    def vocabulary_size(self) -> int:
        return len(self._tokens)

    @property
    def lossless(self) -> bool:
        """False: the blank, at least, is no text."""
        return False

    def token_to_id(self, token: str) -> int | None:
        return self.vocabulary.get(token)

    def id_to_token(self, index: int) -> str:
        return self._tokens[self._check_id(index)]

    def _token_bytes(self, index: int) -> bytes:
        return self._tokens[index].encode("utf-8")

    def _token_table(self, skip_special_tokens: bool) -> list[bytes]:
        table = super()._token_table(skip_special_tokens)
        return [b"", *table[1:]] if self.blanks and skip_special_tokens else table

    def _encode_batch(self, texts: Sequence[str], offsets: bool) -> tuple[list, list]:
        rows, spans = [], []
        for text in texts:
            check_unicode(text)
            found = list(self._with_blanks(self._spelled(text)))
            rows.append([index for index, _, _ in found])
            spans.append([(begin, stop) for _, begin, stop in found])
        return rows, spans if offsets else []

    def _with_blanks(self, spelled: _Spelled) -> Iterable[tuple[int, int, int]]:
        """Yields the ids, each with the part of the text that it stands for: none for a blank."""
        after_letter = False
        for character, begin, stop in spelled:
            index = self.vocabulary.get(character, self.unknown_id)
            if index is None:
                continue
            is_special = character in self._letters
            if self.blanks and not is_special and not after_letter:
                yield 0, begin, begin
            yield index, begin, stop
            if self.blanks and not is_special:
                yield 0, stop, stop
            after_letter = not is_special

    def _spelled(self, text: str) -> _Spelled:
        """Returns the characters that the text is spoken by."""
        characters = [(self.replacements.get(each, each), begin, stop) for each, begin, stop in self._cased(text)]
        joined = "".join(each for each, _, _ in characters)
        if self.spelling == "phonemes" or (self.spelling == "roman" and not joined.isascii()):
            # Each character that the speller returns stands for the whole text.
            characters = [(each, 0, len(text)) for each in self._respelled(joined)]
        if self.spelling == "phonemes" or not self.normalize:
            return characters
        known = [each for each in characters if each[0] in self.vocabulary]
        while known and known[-1][0].isspace():
            known.pop()
        first = next((place for place, each in enumerate(known) if not each[0].isspace()), 0)
        return known[first:]

    def _cased(self, text: str) -> _Spelled:
        """Returns the characters, lowercased unless they are in the vocabulary as they are."""
        if not self.normalize:
            return [(character, place, place + 1) for place, character in enumerate(text)]
        found = []
        for match in self._kept.finditer(text):
            part, begin = match[0], match.start()
            if part in self.vocabulary:
                found += [(character, begin + place, begin + place + 1) for place, character in enumerate(part)]
            else:
                found += [(character, begin, begin + 1) for character in part.lower()]
        return found

    def _respelled(self, text: str) -> str:
        if self.speller is None:
            raise SpellingError(
                f"The vocabulary is of {_SPELLINGS[self.spelling or 'roman']}. Set tokenizer.speller to a function of a "
                "text to its spelling, or to str for texts that are spelled already; or pass token ids."
            )
        text = self.speller(text)
        return re.sub(r"\s+", " ", text) if self.spelling == "phonemes" else text

    def _options(self) -> dict[str, object]:
        names = ("blanks", "normalize", "spelling", "replacements")
        return {name: getattr(self, name) for name in names}

    def _files(self) -> dict[str, bytes]:
        return {FILE: json.dumps({"tokens": self._tokens}).encode("utf-8")}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: SpecialTokens | None, options: dict[str, Any]
    ) -> InterspersedCharacters:
        try:
            tokens = json.loads(files[FILE])["tokens"]
            vocabulary = {token: index for index, token in enumerate(tokens)}
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidTokenizerError(f"'{FILE}' cannot be read: {error}") from None
        return cls(vocabulary, special_tokens, **options)
