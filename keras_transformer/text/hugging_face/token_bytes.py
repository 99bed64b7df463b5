"""The bytes of the tokens of a `tokenizer.json`, by its decoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from keras_transformer.text.errors import TextError
from keras_transformer.text.hugging_face.json import added_tokens
from keras_transformer.text.tokenizers.byte_pair import byte_alphabet
from keras_transformer.text.tokenizers.sentencepiece_model import SPACE
from keras_transformer.text.tokenizers.tokenizer_files import PREFIX
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import tokenizers

# A token of byte fallback.
_BYTE = re.compile("<0x([0-9A-F]{2})>")


def token_bytes(content: JsonObject, tokenizer: tokenizers.Tokenizer, size: int) -> list[bytes]:
    """Returns the bytes that each token adds to a text.

    Args:
        content: dict. The content of the `tokenizer.json`.
        tokenizer: `tokenizers.Tokenizer`.
        size: int. Number of ids.

    Raises:
        TextError: the decoder is of a kind whose tokens have no bytes of their own.
    """
    to_bytes = _decoding(content)
    added = {each["id"] for each in added_tokens(content)}
    tokens = (tokenizer.id_to_token(index) for index in range(size))
    return [
        b"" if token is None else token.encode("utf-8") if index in added else to_bytes(token)
        for index, token in enumerate(tokens)
    ]


def _decoding(content: JsonObject) -> Callable[[str], bytes]:
    """Returns the function of a token to its bytes."""
    parts = list(_parts(content.get("decoder")))
    kinds = [part.get("type") for part in parts]
    if "ByteLevel" in kinds:
        return _byte_level(content["model"].get("end_of_word_suffix") or "")
    if "WordPiece" in kinds:
        prefix = parts[kinds.index("WordPiece")].get("prefix", PREFIX)
        return lambda token: (token.removeprefix(prefix) if token.startswith(prefix) else f" {token}").encode("utf-8")
    if "BPEDecoder" in kinds:
        suffix = parts[kinds.index("BPEDecoder")].get("suffix") or "</w>"
        return lambda token: token.replace(suffix, " ").encode("utf-8")
    if "Metaspace" in kinds or any(_replaces_space(part) for part in parts):
        return _with_fallback if "ByteFallback" in kinds else _spaced
    raise TextError(f"The bytes of tokens are not known for a decoder of {', '.join(map(str, kinds)) or 'no kind'}.")


def _parts(decoder: object) -> Iterator[JsonObject]:
    if not isinstance(decoder, dict):
        return
    if decoder.get("type") != "Sequence":
        yield decoder
    for part in decoder.get("decoders") or ():
        yield from _parts(part)


def _replaces_space(part: JsonObject) -> bool:
    return part.get("type") == "Replace" and (part.get("pattern") or {}).get("String") == SPACE


def _spaced(token: str) -> bytes:
    return token.replace(SPACE, " ").encode("utf-8")


def _with_fallback(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else _spaced(token)


def _byte_level(suffix: str) -> Callable[[str], bytes]:
    alphabet = byte_alphabet()

    def decoded(token: str) -> bytes:
        end = b" " if suffix and token.endswith(suffix) else b""
        token = token.removesuffix(suffix) if end else token
        if any(character not in alphabet for character in token):
            return token.encode("utf-8") + end
        return bytes(alphabet[character] for character in token) + end

    return decoded
