"""Masking of tokens for masked language modeling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.utils.labels import IGNORE_ID
from keras_transformer.utils.types import ArrayLike

if TYPE_CHECKING:
    from keras_transformer.text.tokenizers.tokenizer import Tokenizer

# Prefixes with which tokenizers mark tokens that begin a word, or that continue one.
_WORD_START = ("▁", "Ġ")
_CONTINUATION = "##"


class TokenMasking:
    """Selects random tokens of each row and replaces them for masked language modeling.

    Of n tokens that are neither special nor padding, round(`rate` n) are selected, at least one. Of these, the fraction
    `mask_share` becomes the mask token, `random_share` a random token that is not special, and the rest is not changed.

    Args:
        tokenizer: a tokenizer with a mask token, of `keras_transformer.text`.
        rate: float in (0, 1). Default 0.15.
        mask_share: float in [0, 1]. Default 0.8.
        random_share: float in [0, 1 - `mask_share`]. Default 0.1.
        whole_words: bool. Whether to select all tokens of a word together; for tokenizers that mark words ("##", "▁" or
            "Ġ"). The first word may be longer than the number of tokens to select; further words are not. Default False.
        selected_positions: bool. Whether to return positions and labels of the selected tokens only, for
            `tasks.MaskedLanguageModel(selected_positions=True)`. Default False.

    Call arguments:
        token_ids: int32 `(B, T)`.
        padding_mask: boolean `(B, T)`, True = a real token.
        seed: int >= 0, or a sequence of them. Equal seeds select equal tokens.

    Returns:
        `(masked, labels)`: numpy int32 `(B, T)` and `(B, T)`; the labels are the original tokens where selected and -100
        elsewhere. With `selected_positions`: `(masked, positions, labels)`, the last two `(B, P)`, P = max(1, ceil(`rate`
        T)); rows with fewer selected tokens are filled with position 0 and label -100.

    Raises:
        ValueError: a tokenizer without a mask token or, with `whole_words`, without marked words; a share out of its range.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])
    >>> masking = TokenMasking(tokenizer, rate=0.5, mask_share=1.0, random_share=0.0)
    >>> masked, labels = masking([[2, 5, 6, 7, 5, 3, 0]], [[1, 1, 1, 1, 1, 1, 0]], seed=(0, 1))
    >>> int((masked == tokenizer.mask_id).sum()), int((labels != -100).sum())
    (2, 2)

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 3.1 and appendix A.1; its published code for whole words.
    Unlike there, random tokens are never special, and a word that exceeds the remaining number ends the selection, where
    the published code tries the next.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        rate: float = 0.15,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        whole_words: bool = False,
        selected_positions: bool = False,
    ) -> None:
        self.mask_id = _mask_id(tokenizer)
        _check(rate, mask_share, random_share)
        self.rate = rate
        self.mask_share = mask_share
        self.random_share = random_share
        self.selected_positions = selected_positions
        self._is_special = np.zeros(tokenizer.vocabulary_size, bool)
        self._is_special[list(tokenizer.special_ids)] = True
        self._ordinary_ids = np.flatnonzero(~self._is_special).astype("int32")
        self._continues = np.array(_continuations(tokenizer)) if whole_words else None

    @property
    def num_arrays(self) -> int:
        """The number of arrays that a call returns."""
        return 3 if self.selected_positions else 2

    def __call__(
        self, token_ids: ArrayLike, padding_mask: ArrayLike, seed: int | Sequence[int] | np.ndarray
    ) -> tuple[np.ndarray, ...]:
        token_ids = np.asarray(token_ids, "int32")
        random = np.random.default_rng(seed)
        candidates = np.asarray(padding_mask, bool) & ~self._is_special[token_ids]
        chosen = self._select(token_ids, candidates, random)
        masked = np.where(chosen, self._hide(token_ids, random), token_ids)
        labels = np.where(chosen, token_ids, np.int32(IGNORE_ID))
        if not self.selected_positions:
            return masked, labels
        return masked, *self._selected(chosen, labels)

    def _select(self, token_ids, candidates, random):
        """Returns the tokens to predict, boolean `(B, T)`."""
        words = self._words(token_ids, candidates)
        scores = np.take_along_axis(random.random(token_ids.shape), words, axis=1)
        # Candidates first, in the order of their words' scores; a stable sort keeps the tokens of a word together.
        order = np.argsort(np.where(candidates, scores, 2.0), axis=1, kind="stable")
        ranks = np.argsort(order, axis=1, kind="stable")
        wanted = np.maximum(np.rint(self.rate * candidates.sum(axis=1, keepdims=True)), 1)
        if self._continues is None:
            return candidates & (ranks < wanted)
        # A word fits if its last token does; the first word of the order is always selected.
        last = _over_words(np.maximum, np.where(candidates, ranks, 0), words)
        first = _over_words(np.minimum, ranks, words)
        return candidates & ((last < wanted) | (first == 0))

    def _words(self, token_ids, candidates):
        """Returns the index of each token's word in its row, int `(B, T)`; without `whole_words`, tokens are words."""
        if self._continues is None:
            return np.broadcast_to(np.arange(token_ids.shape[1]), token_ids.shape)
        after_candidate = np.pad(candidates, [(0, 0), (1, 0)])[:, :-1]
        continues = self._continues[token_ids] & candidates & after_candidate
        return np.maximum(np.cumsum(~continues, axis=1) - 1, 0)

    def _hide(self, token_ids, random):
        share = random.random(token_ids.shape)
        other = np.where(
            share < self.mask_share + self.random_share, random.choice(self._ordinary_ids, share.shape), token_ids
        )
        return np.where(share < self.mask_share, np.int32(self.mask_id), other)

    def _selected(self, chosen, labels):
        width = max(1, int(np.ceil(self.rate * labels.shape[1])))
        # Selected positions first, in ascending order.
        order = np.argsort(~chosen, axis=1, kind="stable")[:, :width].astype("int32")
        real = np.arange(width) < chosen.sum(axis=1, keepdims=True)
        found = np.take_along_axis(labels, order, axis=1)
        return np.where(real, order, 0), np.where(real, found, np.int32(IGNORE_ID))


def _over_words(ufunc, values, words):
    """Reduces the values `(B, T)` of each word by `ufunc`, and returns the result for each of its tokens."""
    rows = np.arange(len(words))[:, None]
    results = np.full_like(values, -1 if ufunc is np.maximum else values.shape[1])
    ufunc.at(results, (rows, words), values)
    return np.take_along_axis(results, words, axis=1)


def _continuations(tokenizer):
    """Whether each id continues the word before it."""
    tokens = [tokenizer.id_to_token(index) for index in range(tokenizer.vocabulary_size)]
    special = tokenizer.special_ids
    if any(token.startswith(_CONTINUATION) and token != _CONTINUATION for token in tokens):
        return [token.startswith(_CONTINUATION) for token in tokens]
    if any(token.startswith(_WORD_START) for token in tokens):
        return [not token.startswith(_WORD_START) and index not in special for index, token in enumerate(tokens)]
    raise ValueError(f"The vocabulary of this {type(tokenizer).__name__} does not mark words ('##', '▁' or 'Ġ').")


def _mask_id(tokenizer: Tokenizer) -> int:
    if tokenizer.mask_id is None:
        raise ValueError(f"This {type(tokenizer).__name__} has no mask token.")
    return tokenizer.mask_id


def _check(rate: float, mask_share: float, random_share: float) -> None:
    if not 0 < rate < 1:
        raise ValueError(f"rate must be in (0, 1). Received: {rate}")
    if min(mask_share, random_share) < 0 or mask_share + random_share > 1:
        raise ValueError(
            f"mask_share and random_share must add up to 1 at most. Received: {mask_share}, {random_share}"
        )
