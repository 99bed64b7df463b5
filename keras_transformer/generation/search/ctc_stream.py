"""Best-path decoding of connectionist temporal classification (CTC) while frames arrive."""

from __future__ import annotations

import numpy as np

from keras_transformer.generation.search.ctc import checked_logits
from keras_transformer.utils.types import ArrayLike


class CTCStream:
    """Best-path decoding of logits that arrive in parts: together they give what `ctc_greedy` gives for all at once.

    A token that goes on from one part into the next one is counted once.

    Args:
        num_rows: int >= 1. Rows of the logits B.
        blank_id: int. Default 0.

    Raises:
        ValueError: no rows.

    Example:

    >>> stream = CTCStream(num_rows=1)
    >>> stream.push([[[0.1, 0.9], [0.1, 0.9]]]), stream.push([[[0.2, 0.8], [0.8, 0.2], [0.3, 0.7]]])
    ([[1]], [[1]])

    Reference: Graves et al., Connectionist Temporal Classification, ICML 2006, section 3.2 (best path decoding).
    """

    def __init__(self, num_rows: int, blank_id: int = 0) -> None:
        if num_rows < 1:
            raise ValueError(f"num_rows must be at least 1. Received: {num_rows!r}")
        self.blank_id = blank_id
        self._last = np.full(num_rows, blank_id)

    def push(self, logits: ArrayLike, is_active: ArrayLike | None = None) -> list[list[int]]:
        """Returns the new token ids of each row.

        Args:
            logits: float `(B, T, V)`: the next logits.
            is_active: boolean `(B,)`. False for rows that have no logits here, and go on later; None for none.

        Raises:
            ValueError: logits of another rank or number of rows, or a blank that is none of the tokens.
        """
        logits = checked_logits(logits, self.blank_id)
        if len(logits) != len(self._last):
            raise ValueError(f"Expected logits of {len(self._last)} rows. Received shape: {logits.shape}")
        path = np.concatenate([self._last[:, None], np.argmax(logits, axis=-1)], axis=1)
        active = np.full(len(path), True) if is_active is None else np.asarray(is_active, bool)
        self._last = np.where(active, path[:, -1], self._last)
        begins = (path[:, 1:] != path[:, :-1]) & (path[:, 1:] != self.blank_id) & active[:, None]
        return [row[new].tolist() for row, new in zip(path[:, 1:], begins, strict=True)]

    def forget(self, row: int) -> None:
        """Resets a row for the beginning of another recording."""
        self._last[row] = self.blank_id
