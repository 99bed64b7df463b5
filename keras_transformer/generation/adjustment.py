"""What OpenAI's API adds to logits: penalties by how often a token was written, and a bias of single tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from keras_transformer.generation.errors import GenerationError


@dataclasses.dataclass(frozen=True)
class LogitAdjustment:
    """Numbers that are added to the logits of single tokens before sampling.

    The logit of a token that was written c times becomes
    `logit - c * frequency_penalty - (c > 0) * presence_penalty + bias`.

    Args:
        frequency_penalty: float. Default 0.
        presence_penalty: float. Default 0.
        bias: tuple of pairs of token id and float. Default none.

    Example:

    >>> adjustment = LogitAdjustment(frequency_penalty=0.5, presence_penalty=1.0, bias=((2, 3.0),))
    >>> adjustment.apply(np.zeros((1, 3)), [[0, 0]]).tolist()
    [[-2.0, 0.0, 3.0]]

    Reference: the parameters `frequency_penalty`, `presence_penalty` and `logit_bias` of the OpenAI API.
    """

    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()

    def check(self, vocabulary_size: int) -> None:
        """Checks the tokens of the bias.

        Raises:
            GenerationError: a token does not exist.
        """
        wrong = [token for token, _ in self.bias if not 0 <= token < vocabulary_size]
        if wrong:
            raise GenerationError(f"logit_bias has the token {wrong[0]}; tokens are from 0 to {vocabulary_size - 1}.")

    def apply(self, logits: np.ndarray, sequences: Iterable[Sequence[int] | None]) -> np.ndarray:
        """Returns adjusted logits.

        Args:
            logits: float `(R, V)`; it is not changed.
            sequences: for each row the tokens that were written so far; None for a row that is not used.

        Returns:
            Float `(R, V)`.
        """
        adjusted = np.array(logits)
        for row, tokens in zip(adjusted, sequences, strict=True):
            if tokens and (self.frequency_penalty or self.presence_penalty):
                written, counts = np.unique(np.asarray(tokens), return_counts=True)
                row[written] -= self.frequency_penalty * counts + self.presence_penalty
            for token, value in self.bias:
                row[token] += value
        return adjusted
