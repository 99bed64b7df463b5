"""Orders in which a permutation language model finds tokens, drawn anew in every epoch."""

import numpy as np

from keras_transformer.utils.labels import IGNORE_ID


class TokenPermutation:
    """Chooses targets in each row, and draws an order of factorization.

    Each token has a rank in the order: 0 for the context, whose tokens all see each other, and 1, 2, ... for the others. A
    token may see another of lower rank, and none of its own or a higher one, but for the context: so no token that is to be
    found is told by one that has seen it. Special tokens are context.

    With `max_span_length`, the targets are spans of 1 to so many tokens, each in a piece of the row that is `1 / rate` times
    as long; what is no target is context. Without, all tokens that are neither special nor padding stand in the order,
    and the last of them are the targets. Of n such tokens, at most ceil(`rate` T) are targets, and one at least.

    Args:
        tokenizer: a tokenizer of `keras_transformer.text`.
        rate: float in (0, 1). The share of targets, 1 / K in the paper. Defaults to 1/6.
        max_span_length: int >= 1, or None. Defaults to 5.

    Call arguments:
        token_ids: int32 `(B, T)`.
        padding_mask: boolean `(B, T)`, True = a real token.
        seed: int >= 0, or a sequence of them. The same seed draws the same orders.

    Returns:
        `(ranks, positions, labels)`: numpy int32 `(B, T)`, `(B, P)` and `(B, P)`, P = max(1, ceil(`rate` T)): where targets
        stand, from left to right, and their tokens; -1 and -100 where a row has fewer.

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
    code, and transformers' collator. There the targets of the first half of a row come before those of the second, for the
    sake of a memory, and transformers puts the mask token in the place of targets.
    """

    num_arrays = 3

    def __init__(self, tokenizer, *, rate=1 / 6, max_span_length=5):
        if not 0 < rate < 1:
            raise ValueError(f"rate must lie in (0, 1). Received: {rate}")
        if max_span_length is not None and max_span_length < 1:
            raise ValueError(f"max_span_length must be at least 1, or None. Received: {max_span_length}")
        self.rate = rate
        self.max_span_length = max_span_length
        self._is_special = np.zeros(tokenizer.vocabulary_size, bool)
        self._is_special[list(tokenizer.special_ids)] = True

    def __call__(self, token_ids, padding_mask, seed):
        token_ids = np.asarray(token_ids, "int32")
        random = np.random.default_rng(seed)
        candidates = np.asarray(padding_mask, bool) & ~self._is_special[token_ids]
        width = max(1, int(np.ceil(self.rate * token_ids.shape[1])))
        if self.max_span_length is None:
            ranks, targets = self._last_of_all(candidates, width, random)
        else:
            ranks, targets = self._spans(candidates, width, random)
        return ranks, *_selected(token_ids, targets, width)

    def _last_of_all(self, candidates, width, random):
        """Ranks of all candidates, and which are targets: the last ones."""
        ranks = _ranks(candidates, random)
        counts = candidates.sum(axis=1, keepdims=True)
        wanted = np.clip(np.rint(self.rate * counts), 1, width)
        return ranks, candidates & (ranks > counts - wanted)

    def _spans(self, candidates, width, random):
        """Ranks of the targets, and which they are: spans."""
        chosen = np.stack([self._spans_of_row(candidates.shape[1], random) for _ in candidates]) & candidates
        # One at least, and no more than there is room for.
        alone = _ranks(candidates, random) == 1
        chosen = np.where(chosen.any(axis=1, keepdims=True), chosen, alone)
        targets = chosen & (_ranks(chosen, random) <= width)
        return _ranks(targets, random), targets

    def _spans_of_row(self, length, random):
        chosen, start = np.zeros(length, bool), 0
        while start < length:
            size = int(random.integers(1, self.max_span_length + 1))
            piece = max(size, int(size / self.rate))
            first = start + int(random.integers(piece - size + 1))
            chosen[first : first + size] = True
            start += piece
        return chosen


def _ranks(members, random):
    """Int32 `(B, T)`: the members of each row numbered 1, 2, ... at random; 0 for the others."""
    keys = np.where(members, random.random(members.shape), 2.0)
    ranks = np.argsort(np.argsort(keys, axis=1, kind="stable"), axis=1, kind="stable") + 1
    return np.where(members, ranks, 0).astype("int32")


def _selected(token_ids, targets, width):
    """Positions and labels of the targets, `(B, width)` each."""
    order = np.argsort(~targets, axis=1, kind="stable")[:, :width].astype("int32")
    real = np.arange(order.shape[1]) < targets.sum(axis=1, keepdims=True)
    found = np.take_along_axis(token_ids, order, axis=1)
    return np.where(real, order, np.int32(-1)), np.where(real, found, np.int32(IGNORE_ID))
