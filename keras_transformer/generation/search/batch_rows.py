"""Assignment of token sequences to batch rows, so that shared prefixes are not read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.generation.decoding_request import ModelInput
from keras_transformer.generation.loop import pad

if TYPE_CHECKING:
    from keras_transformer.generation.decoding_request import DecodingRequest


class BatchRows:
    """Batch rows that read candidate sequences, `width` rows for each prompt.

    With a rewindable cache, each row keeps what it has read, and a new sequence is read from where it differs. Otherwise the
    cache is saved after the committed sequence, and every candidate is read from there.

    Args:
        request: `DecodingRequest`.
        width: int >= 1. Number of rows for each prompt.
    """

    def __init__(self, request: DecodingRequest, width: int) -> None:
        self.width = width
        self._is_rewindable = request.cache_is_rewindable
        self._max_length = int(request.lengths.max()) + request.max_new_tokens - 1
        self._committed = [len(prompt) for prompt in request.prompts]
        self._cached = [prompt.tolist() for prompt in request.prompts for _ in range(width)]
        self._is_expanded = False

    def assign(self, sequences: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
        """Assigns each sequence to the row with the longest common prefix.

        Args:
            sequences: for each prompt a list of at most `width` lists of tokens.

        Returns:
            For each prompt a list of distinct row indices below `width`.
        """
        return [self._assign(number, each) for number, each in enumerate(sequences)]

    def _assign(self, number: int, sequences: Sequence[Sequence[int]]) -> list[int]:
        cached = self._cached[number * self.width : (number + 1) * self.width]
        free, assigned = list(range(self.width)), []
        for sequence in sequences:
            row = max(free, key=lambda row: (_common_prefix(cached[row], sequence), -row))
            assigned.append(row)
            free.remove(row)
        return assigned

    def read(self, sequences: Sequence[Sequence[int] | None]) -> tuple[ModelInput, np.ndarray]:
        """Returns the model input that reads sequences.

        Args:
            sequences: for each row a list of tokens, or None for a row whose output is not used.

        Returns:
            `(model_input, indices)`: the indices of the last token of each sequence in the logits, int `(R,)`.
        """
        whole = [old if new is None else new for new, old in zip(sequences, self._cached, strict=True)]
        lengths, committed = np.array([len(each) for each in whole]), np.repeat(self._committed, self.width)
        starts = committed
        if self._is_rewindable:
            starts = np.array([_common_prefix(*pair) for pair in zip(self._cached, whole, strict=True)])
        starts = np.minimum(starts, lengths - 1)
        # Powers of two, to limit the number of compiled shapes.
        size = 1 << int((lengths - starts).max() - 1).bit_length()
        if self._is_rewindable:
            size = min(size, self._max_length)
            index = np.maximum(0, lengths - size)
        else:
            size = min(size, self._max_length - int(committed.max()))
            index = starts
        tokens = [each[start : start + size] for each, start in zip(whole, index.tolist(), strict=True)]
        self._cached = whole
        token_ids = pad([*tokens, [0] * size])[:-1]
        rows, from_saved = self._cache_rows(), not self._is_rewindable
        return ModelInput(token_ids, index.astype("int32"), rows, from_saved=from_saved), lengths - 1 - index

    def _cache_rows(self) -> np.ndarray | None:
        """Returns the cache rows to continue, of the saved cache or the current one; None for the same rows."""
        if self._is_rewindable and (self._is_expanded or self.width == 1):
            return None
        self._is_expanded = True
        return np.repeat(np.arange(len(self._committed), dtype="int32"), self.width)

    def commit(self, sequences: Sequence[Sequence[int]]) -> ModelInput | None:
        """Commits the sequence of each prompt; returns the input that adds its last token to the saved cache, if any."""
        if self._is_rewindable:
            return None
        rows = np.arange(len(sequences), dtype="int32")
        last = np.array([[sequence[-1]] for sequence in sequences], "int32")
        index = np.array(self._committed, "int32")
        self._committed = [len(sequence) for sequence in sequences]
        return ModelInput(last, index, rows, from_saved=True, save=True)


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns the length of the common prefix of two sequences."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))
