"""Random factorization orders for permutation language modeling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer


class TokenPermutation:
    """Selects prediction targets in each row, and draws a factorization order.

    Each token has a rank in the order: 0 for the context, whose tokens all attend to each other, and 1, 2, ... for the
    others. A token attends to the context and to tokens of lower rank, so that no target is visible to the tokens that
    predict it. Special tokens are context.

    With `max_span_length`, the targets are spans of 1 to `max_span_length` tokens, each in a section of the row that is
    `1 / rate` times as long; all other tokens are context. Without, all tokens that are neither special nor padding are
    ranked, and the last ones are the targets. Of n such tokens, at most ceil(`rate` T) are targets, and at least one.

    Args:
        tokenizer: a tokenizer of `keras_transformer.text`.
        rate: float in (0, 1). The fraction of targets, 1 / K in the paper. Default 1/6.
        max_span_length: int >= 1, or None. Default 5.

    Call arguments:
        token_ids: int32 `(B, T)`.
        padding_mask: boolean `(B, T)`, True = a real token.
        seed: int >= 0, or a sequence of them. Equal seeds draw equal orders.

    Returns:
        `(ranks, positions, labels)`: numpy int32 `(B, T)`, `(B, P)` and `(B, P)`, P = max(1, ceil(`rate` T)): positions of
        the targets, in ascending order, and their tokens; -1 and -100 if a row has fewer.

    Raises:
        ValueError: `rate` out of its range; `max_span_length` below 1.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])
    >>> permutation = TokenPermutation(tokenizer, rate=0.4, max_span_length=None)
    >>> ranks, positions, labels = permutation([[2, 5, 6, 7, 3]], [[1, 1, 1, 1, 1]], seed=0)
    >>> sorted(ranks[0].tolist()), int(ranks[0, positions[0, 0]])
    ([0, 0, 1, 2, 3], 3)

    Reference: Yang et al., XLNet, arXiv 1906.08237, sections 2.2 and 2.3, equation 5; spans and their context: its published
    code, and the collator of transformers. There the targets of the first half of a row precede those of the second, for
    the use of a memory, and transformers replaces targets by the mask token.
    """

    num_arrays = 3

    def __init__(self, tokenizer: Tokenizer, *, rate: float = 1 / 6, max_span_length: int | None = 5) -> None:
        if not 0 < rate < 1:
            raise ValueError(f"rate must be in (0, 1). Received: {rate}")
        if max_span_length is not None and max_span_length < 1:
            raise ValueError(f"max_span_length must be at least 1, or None. Received: {max_span_length}")
        self.rate = rate
        self.max_span_length = max_span_length
        self._is_special = np.zeros(tokenizer.vocabulary_size, bool)
        self._is_special[list(tokenizer.special_ids)] = True

    def __call__(
        self, token_ids: ArrayLike, padding_mask: ArrayLike, seed: int | Sequence[int] | np.ndarray
    ) -> tuple[np.ndarray, ...]:
        token_ids = np.asarray(token_ids, "int32")
        random = np.random.default_rng(seed)
        candidates = np.asarray(padding_mask, bool) & ~self._is_special[token_ids]
        width = max(1, int(np.ceil(self.rate * token_ids.shape[1])))
        if self.max_span_length is None:
            ranks, targets = self._last_ranks(candidates, width, random)
        else:
            ranks, targets = self._spans(candidates, width, self.max_span_length, random)
        return ranks, *_selected(token_ids, targets, width)

    def _last_ranks(self, candidates, width, random):
        """Returns the ranks of all candidates, and the targets: the candidates of the highest ranks."""
        ranks = _ranks(candidates, random)
        counts = candidates.sum(axis=1, keepdims=True)
        wanted = np.clip(np.rint(self.rate * counts), 1, width)
        return ranks, candidates & (ranks > counts - wanted)

    def _spans(self, candidates, width, max_length, random):
        """Returns the ranks of the targets, and the targets: spans."""
        rows = [self._spans_of_row(candidates.shape[1], max_length, random) for _ in candidates]
        chosen = np.stack(rows) & candidates
        # At least one, and at most `width`.
        alone = _ranks(candidates, random) == 1
        chosen = np.where(chosen.any(axis=1, keepdims=True), chosen, alone)
        targets = chosen & (_ranks(chosen, random) <= width)
        return _ranks(targets, random), targets

    def _spans_of_row(self, length, max_length, random):
        chosen, start = np.zeros(length, bool), 0
        while start < length:
            size = int(random.integers(1, max_length + 1))
            section = max(size, int(size / self.rate))
            first = start + int(random.integers(section - size + 1))
            chosen[first : first + size] = True
            start += section
        return chosen


def _ranks(members, random):
    """Numbers the members of each row 1, 2, ... at random, int32 `(B, T)`; 0 for the others."""
    keys = np.where(members, random.random(members.shape), 2.0)
    ranks = np.argsort(np.argsort(keys, axis=1, kind="stable"), axis=1, kind="stable") + 1
    return np.where(members, ranks, 0).astype("int32")


def _selected(token_ids, targets, width):
    """Returns positions and labels of the targets, `(B, width)` each."""
    order = np.argsort(~targets, axis=1, kind="stable")[:, :width].astype("int32")
    real = np.arange(order.shape[1]) < targets.sum(axis=1, keepdims=True)
    found = np.take_along_axis(token_ids, order, axis=1)
    return np.where(real, order, np.int32(-1)), np.where(real, found, np.int32(IGNORE_ID))
