"""The vocabulary of a tokenizer: tokens, ids and special tokens."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from keras_transformer.text.errors import SpecialTokenError, TextError
from keras_transformer.text.tokenizers.special_tokens import tokens_in
from keras_transformer.utils.types import SpecialTokens


class Vocabulary:
    """Mapping between tokens and ids, with special tokens. Base class of `Tokenizer`.

    Args:
        special_tokens: dict of role ("pad", "unknown", "classification", "start", "end", "separator", "mask") to token;
            "additional" maps to a list of further special tokens. All of them must be in the vocabulary.

    Raises:
        SpecialTokenError: a special token is not in the vocabulary.
    """

    def __init__(self, special_tokens: SpecialTokens) -> None:
        self.special_tokens: dict[str, Any] = dict(special_tokens)
        self._ids_of_special: dict[str, int] = {}
        for token in tokens_in(self.special_tokens):
            index = self.token_to_id(token)
            if index is None:
                raise SpecialTokenError(f"The special token {token!r} is not in the vocabulary.")
            self._ids_of_special[token] = index
        # Cache of `Tokenizer._decode_tokens`.
        self._decoding_tables: dict[bool, list[bytes]] = {}
        self._special_ids = frozenset(self._ids_of_special.values())
        # Longest first, so that a token is preferred to its prefixes. Without tokens, the pattern never matches.
        ordered = sorted(self._ids_of_special, key=len, reverse=True)
        self._special_pattern = re.compile("(" + ("|".join(map(re.escape, ordered)) or "(?!)") + ")")

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids: ids are less than this."""
        raise NotImplementedError

    @property
    def lossless(self) -> bool:
        """Whether `decode(encode(text)) == text` for every Unicode text."""
        raise NotImplementedError

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of a token, or None."""
        raise NotImplementedError

    def id_to_token(self, index: int) -> str:
        """Returns the token with this id, as in the vocabulary.

        Raises:
            TextError: the id is not in the vocabulary.
        """
        raise NotImplementedError

    def _id_of_role(self, role: str) -> int | None:
        return self._ids_of_special.get(self.special_tokens.get(role, ""))

    @property
    def pad_id(self) -> int | None:
        """Id of the padding token, or None."""
        return self._id_of_role("pad")

    @property
    def unknown_id(self) -> int | None:
        """Id of the token for text that is not in the vocabulary, or None."""
        return self._id_of_role("unknown")

    @property
    def start_id(self) -> int | None:
        """Id of the start-of-text token, or None."""
        return self._id_of_role("start")

    @property
    def end_id(self) -> int | None:
        """Id of the end-of-text token, or None."""
        return self._id_of_role("end")

    @property
    def mask_id(self) -> int | None:
        """Id of the mask token, or None."""
        return self._id_of_role("mask")

    @property
    def separator_id(self) -> int | None:
        """Id of the token at the end of a segment, or None."""
        return self._id_of_role("separator")

    @property
    def classification_id(self) -> int | None:
        """Id of the classification token at the start of a sequence, or None."""
        return self._id_of_role("classification")

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of all special tokens."""
        return self._special_ids

    def opening_id(self) -> int:
        """Id that `start=True` prepends: of the start token, or else of the classification token, as in BERT.

        Raises:
            SpecialTokenError: the tokenizer has neither.
        """
        return self._first_id("start", "classification")

    def closing_id(self) -> int:
        """Id that `end=True` appends: of the end token, or else of the separator, as in BERT.

        Raises:
            SpecialTokenError: the tokenizer has neither.
        """
        return self._first_id("end", "separator")

    def _first_id(self, *roles: str) -> int:
        for role in roles:
            index = self._id_of_role(role)
            if index is not None:
                return index
        raise SpecialTokenError(f"This {type(self).__name__} has no {' and no '.join(roles)} token.")

    def _check_id(self, index: int) -> int:
        if not isinstance(index, (int, np.integer)) or not 0 <= index < self.vocabulary_size:
            raise TextError(f"A token id must be an int from 0 to {self.vocabulary_size - 1}. Received: {index!r}")
        return int(index)
