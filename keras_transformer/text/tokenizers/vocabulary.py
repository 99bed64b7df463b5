"""The tokens of a tokenizer, and the roles that some of them play."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from keras_transformer.text.errors import SpecialTokenError, TextError
from keras_transformer.text.tokenizers.special_tokens import tokens_in


class Vocabulary:
    """Tokens and their ids. The base of `Tokenizer`.

    Args:
        special_tokens: dict of role ("pad", "unknown", "classification", "start", "end", "separator", "mask") to token;
            "additional" maps to a list of further ones. All of them must be in the vocabulary.

    Raises:
        SpecialTokenError: a special token is not in the vocabulary.
    """

    def __init__(self, special_tokens: dict[str, Any]) -> None:
        self.special_tokens = dict(special_tokens)
        self._ids_of_special: dict[str, int] = {}
        for token in tokens_in(self.special_tokens):
            index = self.token_to_id(token)
            if index is None:
                raise SpecialTokenError(f"The special token {token!r} is not in the vocabulary.")
            self._ids_of_special[token] = index
        # Filled by `Tokenizer.decode` when it is first used.
        self._tables: dict[bool, Any] = {}
        self._special_ids = frozenset(self._ids_of_special.values())
        # Longest first, so that no token hides another that it begins.
        ordered = sorted(self._ids_of_special, key=len, reverse=True)
        self._special_pattern = re.compile("(" + "|".join(map(re.escape, ordered)) + ")") if ordered else None

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens; ids run from 0 to one below."""
        raise NotImplementedError

    @property
    def lossless(self) -> bool:
        """Whether `decode(encode(text)) == text` for every Unicode text."""
        raise NotImplementedError

    def token_to_id(self, token: str) -> int | None:
        """Id of a token, or None."""
        raise NotImplementedError

    def id_to_token(self, index: int) -> str:
        """The token with this id, as the vocabulary spells it.

        Raises:
            TextError: there is no such id.
        """
        raise NotImplementedError

    def _id_of_role(self, role: str) -> int | None:
        token = self.special_tokens.get(role)
        return None if token is None else self._ids_of_special.get(token)

    pad_id = property(lambda self: self._id_of_role("pad"), doc="Id that fills a batch, or None.")
    unknown_id = property(lambda self: self._id_of_role("unknown"), doc="Id for what the vocabulary lacks, or None.")
    start_id = property(lambda self: self._id_of_role("start"), doc="Id that opens a text, or None.")
    end_id = property(lambda self: self._id_of_role("end"), doc="Id that closes a text, or None.")
    mask_id = property(lambda self: self._id_of_role("mask"), doc="Id that hides a token, or None.")
    separator_id = property(lambda self: self._id_of_role("separator"), doc="Id that ends a segment, or None.")
    classification_id = property(lambda self: self._id_of_role("classification"), doc="Id that stands first, or None.")

    @property
    def special_ids(self) -> frozenset[int]:
        """frozenset of the ids of all special tokens."""
        return self._special_ids

    def opening_id(self) -> int:
        """Id that `start=True` puts first: of the start token, or of the classification token in BERT's manner.

        Raises:
            SpecialTokenError: the tokenizer has neither.
        """
        return self._first_id("start", "classification")

    def closing_id(self) -> int:
        """Id that `end=True` puts last: of the end token, or of the separator in BERT's manner.

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
