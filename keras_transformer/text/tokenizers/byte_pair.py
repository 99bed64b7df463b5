"""Byte-level byte-pair encoding, in the format of the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from keras_transformer.text.corpus import check_size, stream_texts
from keras_transformer.text.errors import InvalidTokenizerError
from keras_transformer.text.hugging_face.formats import encode_batch, library, library_calls
from keras_transformer.text.hugging_face.json import added_tokens, load_content, parsed
from keras_transformer.text.tokenizers.special_tokens import (
    WITHOUT_UNKNOWN,
    special_token_roles,
    tokens_in,
    well_known_roles,
)
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.text.tokenizers.tokenizer_files import errors_with_path, read_text
from keras_transformer.utils.types import JsonObject, Path, SpecialTokens

FILE = "tokenizer.json"


def byte_alphabet() -> dict[str, int]:
    """Returns a dict of the 256 characters that represent bytes in a byte-level vocabulary to those bytes.

    Printable bytes map to the character with the same code, the others to characters from U+0100 (Radford et al. 2019,
    published code).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [value for value in range(256) if value not in printable]
    return {chr(value): value for value in printable} | {chr(256 + index): value for index, value in enumerate(others)}


class BytePair(Tokenizer):
    """Byte-level byte-pair encoding (BPE) by the `tokenizers` library. Encodes every text without unknown tokens.

    Args:
        tokenizer_json: str. The content of a `tokenizer.json` with a byte-level BPE model.
        special_tokens: dict of role to token, or None to detect special tokens with well-known names.

    Returns:
        Called with texts, a dict of padded arrays: "token_ids" and "padding_mask" `(B, T)`; see `Tokenizer.__call__`.

    Raises:
        InvalidTokenizerError: the content is not a byte-level BPE.
        SpecialTokenError: a special token is not in the vocabulary.

    Example:

    >>> tokenizer = BytePair.train(["the cat sat on the mat"], 270)
    >>> tokenizer.decode(tokenizer.encode(" naïve  cat 😀\\n")) == " naïve  cat 😀\\n"
    True

    Reference:
        Sennrich et al. 2016; on bytes: Radford et al. 2019, section 2.2.
    """

    kind = "byte_pair"

    def __init__(self, tokenizer_json: str, special_tokens: SpecialTokens | None = None) -> None:
        # The original text: another version of the library may serialize it differently.
        self._json = tokenizer_json
        self._content = _parsed(tokenizer_json)
        # A post-processor would trim spaces from the offsets.
        plain = {**self._content, "truncation": None, "padding": None, "post_processor": None}
        self._tokenizer = load_content(plain)
        # The name of a special token in a text is ordinary text; see `encode`.
        self._tokenizer.encode_special_tokens = True
        # Not the number of tokens: a file may skip ids.
        self._size = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        added = {each["content"]: each for each in added_tokens(self._content)}
        if special_tokens is None:
            special_tokens = well_known_roles([name for name, each in added.items() if each["special"]])
        super().__init__(special_tokens)
        alphabet = byte_alphabet()
        self._bytes = [self._bytes_of(index, added, alphabet) for index in range(self._size)]

    def _bytes_of(self, index: int, added: Container[str], alphabet: dict[str, int]) -> bytes:
        token = self._tokenizer.id_to_token(index)
        if token is None:
            return b""
        if token in added or any(character not in alphabet for character in token):
            return token.encode("utf-8")
        return bytes(alphabet[character] for character in token)

    @classmethod
    def train(
        cls,
        files_or_texts: Path | Iterable[Path],
        vocabulary_size: int,
        *,
        special_tokens: SpecialTokens | None = None,
        min_frequency: int = 2,
        separate_spaces: bool = False,
    ) -> BytePair:
        """Trains the merges on a corpus.

        Args:
            files_or_texts: path, list of paths, or iterable of str. Streamed: memory depends only on the number of distinct
                words.
            vocabulary_size: int. Maximum number of tokens: special tokens, 256 bytes and merges. The vocabulary is smaller
                if the corpus has fewer pairs.
            special_tokens: dict of role to token. Defaults to <pad>, <s>, </s>, <mask>.
            min_frequency: int >= 1. Minimum count of a pair to be merged.
            separate_spaces: bool. Whether a space is a token of its own. A word has then the same tokens at the start of a
                line, after a space and after a dot, which helps small models to copy names; texts have more tokens. Default
                False: a space belongs to the word after it.

        Returns:
            A `BytePair`.

        Raises:
            TextError: an argument is out of range.
            EmptyTextError, EncodingError, MissingTextError: the corpus is empty, not UTF-8 or missing.
        """
        roles = special_token_roles(special_tokens, WITHOUT_UNKNOWN)
        check_size(vocabulary_size, len(tokens_in(roles)) + 256)
        texts = stream_texts(files_or_texts)
        tokenizers = library()
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        parts = tokenizers.pre_tokenizers
        tokenizer.pre_tokenizer = parts.ByteLevel(add_prefix_space=False)
        if separate_spaces:
            tokenizer.pre_tokenizer = parts.Sequence([parts.Split(" ", "isolated"), tokenizer.pre_tokenizer])
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocabulary_size,
            min_frequency=min_frequency,
            special_tokens=tokens_in(roles),
            initial_alphabet=sorted(byte_alphabet()),
            show_progress=False,
        )
        with library_calls():
            tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer.to_str(), roles)

    @classmethod
    def from_file(cls, path: Path, special_tokens: SpecialTokens | None = None) -> BytePair:
        """Loads a `tokenizer.json` of the `tokenizers` library, such as that of GPT-2.

        Its post-processor is not applied: `encode` adds special tokens only with `start` and `end`.

        Args:
            path: str or path.
            special_tokens: dict of role to token, or None to detect special tokens with well-known names. The
                "<|endoftext|>" of GPT-2 is then both start and end token.

        Raises:
            InvalidTokenizerError: the file does not exist, or does not contain a byte-level BPE.
        """
        content = read_text(path)
        with errors_with_path(path):
            return cls(content, special_tokens)

    @property
    def vocabulary_size(self) -> int:
        return self._size

    @property
    def lossless(self) -> bool:
        """True unless the `tokenizer.json` normalizes text, adds or strips spaces, or lacks a byte."""
        known = all(self._tokenizer.token_to_id(character) is not None for character in byte_alphabet())
        prefix = any(part.get("add_prefix_space") for part in _byte_levels(self._content["pre_tokenizer"]))
        strips = any(
            each.get("lstrip") or each.get("rstrip")
            for each in self._content.get("added_tokens") or ()
            if not each["special"]
        )
        return known and self._content.get("normalizer") is None and not prefix and not strips

    def token_to_id(self, token: str) -> int | None:
        return self._tokenizer.token_to_id(token)

    def id_to_token(self, index: int) -> str:
        return self._tokenizer.id_to_token(self._check_id(index)) or ""

    def _token_bytes(self, index: int) -> bytes:
        return self._bytes[index]

    def _encode_batch(self, texts: Sequence[str], offsets: bool) -> tuple[list, list]:
        return encode_batch(self._tokenizer, texts, offsets)

    def _files(self) -> dict[str, bytes]:
        return {FILE: self._json.encode("utf-8")}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: SpecialTokens | None, options: dict[str, object]
    ) -> BytePair:
        return cls(files[FILE].decode("utf-8"), special_tokens)


def _byte_levels(pre_tokenizer: JsonObject | None) -> list[JsonObject]:
    parts = (pre_tokenizer or {}).get("pretokenizers") or [pre_tokenizer or {}]
    return [part for part in parts if part.get("type") == "ByteLevel"]


def _parsed(tokenizer_json: str) -> JsonObject:
    content = parsed(tokenizer_json)
    is_bpe = content["model"].get("type", "BPE") == "BPE" and "merges" in content["model"]
    if not is_bpe or not _byte_levels(content.get("pre_tokenizer")):
        raise InvalidTokenizerError("This tokenizer.json does not contain a byte-level BPE.")
    return content
