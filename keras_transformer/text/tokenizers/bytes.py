"""UTF-8 byte tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.text.corpus import stream_texts
from keras_transformer.text.errors import TextError
from keras_transformer.text.tokenizers.special_tokens import WITHOUT_UNKNOWN, special_token_roles, tokens_in
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.utils.types import Path, SpecialTokens

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.graphs import BytesGraph


class Bytes(Tokenizer):
    """Byte tokenizer: one token for each UTF-8 byte. Needs no training and no unknown token, and is lossless.

    Ids are assigned to the special tokens, then to the 256 bytes.

    Args:
        special_tokens: dict of role to token. Defaults to <pad>, <s>, </s>, <mask>.

    Returns:
        Called with texts, a dict of padded arrays: "token_ids" and "padding_mask" `(B, T)`; see `Tokenizer.__call__`.

    Raises:
        SpecialTokenError: an unknown role, or a duplicate token.

    Example:

    >>> tokenizer = Bytes()
    >>> tokenizer.encode("Aé", end=True)
    [69, 199, 173, 2]
    >>> tokenizer.decode([69, 199, 173, 2])
    'Aé'

    Reference:
        Xue et al. 2022, section 3.1 (ByT5). ByT5 has three special tokens, and uses unused ids as sentinels of masked
        spans.
    """

    kind = "bytes"

    def __init__(self, special_tokens: SpecialTokens | None = None) -> None:
        roles = special_token_roles(special_tokens, WITHOUT_UNKNOWN)
        special = tokens_in(roles)
        self._first_byte = len(special)
        self._tokens = [*special, *(f"<0x{value:02X}>" for value in range(256))]
        self._ids = {token: index for index, token in enumerate(self._tokens)}
        self._bytes = [*(token.encode("utf-8") for token in special), *(bytes([value]) for value in range(256))]
        super().__init__(roles)

    @classmethod
    def train(
        cls,
        files_or_texts: Path | Iterable[Path] | None = None,
        vocabulary_size: int | None = None,
        *,
        special_tokens: SpecialTokens | None = None,
    ) -> Bytes:
        """Creates a tokenizer. Nothing is trained; the method exists for a common interface of all tokenizers.

        Args:
            files_or_texts: the corpus, or None. Only its start is read, to raise the same errors as other tokenizers.
            vocabulary_size: None, or an int of at least the number of special tokens plus 256.
            special_tokens: dict of role to token. Defaults to <pad>, <s>, </s>, <mask>.

        Returns:
            A `Bytes`.

        Raises:
            TextError: `vocabulary_size` is too small.
            EmptyTextError, EncodingError, MissingTextError: the corpus is empty, not UTF-8 or missing.
        """
        tokenizer = cls(special_tokens)
        if vocabulary_size is not None and vocabulary_size < tokenizer.vocabulary_size:
            raise TextError(
                f"vocabulary_size must be at least {tokenizer.vocabulary_size}. Received: {vocabulary_size}"
            )
        if files_or_texts is not None:
            stream_texts(files_or_texts)
        return tokenizer

    @property
    def vocabulary_size(self) -> int:
        return len(self._tokens)

    @property
    def lossless(self) -> bool:
        """True: every text has an encoding in bytes."""
        return True

    def token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def id_to_token(self, index: int) -> str:
        return self._tokens[self._check_id(index)]

    def _token_bytes(self, index: int) -> bytes:
        return self._bytes[index]

    def _encode_batch(self, texts: Sequence[str], offsets: bool) -> tuple[list, list]:
        first = self._first_byte
        rows = [(np.frombuffer(text.encode("utf-8"), "uint8") + np.int32(first)).tolist() for text in texts]
        if not offsets:
            return rows, []
        spans = [
            [(begin, begin + 1) for begin, character in enumerate(text) for _ in character.encode("utf-8")]
            for text in texts
        ]
        return rows, spans

    def _graph(self) -> BytesGraph:
        from keras_transformer.text.tokenizers.graphs import BytesGraph

        return BytesGraph(self)

    def _files(self) -> dict[str, bytes]:
        return {}

    @classmethod
    def _from_files(
        cls, files: dict[str, bytes], special_tokens: SpecialTokens | None, options: dict[str, object]
    ) -> Bytes:
        return cls(special_tokens)
