"""Hiding tokens for the masked language model to find, anew in every epoch."""

import numpy as np

from keras_transformer.utils.labels import IGNORE_ID

# How tokenizers mark a token that begins a word, or one that goes on with it.
_BEGINS = ("▁", "Ġ")
_CONTINUES = "##"


class TokenMasking:
    """Chooses tokens of each row, hides them, and says what they were.

    Of n tokens that are neither special nor padding, round(`rate` n) are chosen, one at least. Of the chosen, a share
    `mask_share` becomes the mask token, `random_share` a random token that is not special, and the rest stays as it is.

    Args:
        tokenizer: a tokenizer with a mask token, of `keras_transformer.text`.
        rate: float in (0, 1). Defaults to 0.15.
        mask_share: float in [0, 1]. Defaults to 0.8.
        random_share: float in [0, 1 - `mask_share`]. Defaults to 0.1.
        whole_words: bool. Whether the tokens of a word are chosen together; for tokenizers that mark words ("##", "▁" or
            "Ġ"). The first word chosen may be longer than the number of tokens asked for; any further one fits.
        selected_positions: bool. Whether the labels of the chosen tokens alone come back, and their positions, for
            `tasks.MaskedLanguageModel(selected_positions=True)`.

    Call arguments:
        token_ids: int32 `(B, T)`.
        padding_mask: boolean `(B, T)`, True = a real token.
        seed: int >= 0, or a sequence of them. The same seed chooses the same tokens.

    Returns:
        `(masked, labels)`: numpy int32 `(B, T)` and `(B, T)`, the token where one was chosen and -100 elsewhere. With
        `selected_positions`: `(masked, positions, labels)`, the last two `(B, P)`, P = max(1, ceil(`rate` T)); rows with
        fewer are filled with position 0 and label -100.

    Raises:
        ValueError: a tokenizer without mask token or, with `whole_words`, without marked words; a share out of its range.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"])
    >>> masking = TokenMasking(tokenizer, rate=0.5, mask_share=1.0, random_share=0.0)
    >>> masked, labels = masking([[2, 5, 6, 7, 5, 3, 0]], [[1, 1, 1, 1, 1, 1, 0]], seed=(0, 1))
    >>> int((masked == tokenizer.mask_id).sum()), int((labels != -100).sum())
    (2, 2)

    Reference: Devlin et al., BERT, arXiv 1810.04805, section 3.1 and appendix A.1; its published code for whole words. The
    random token is never a special one, and a word that is too long for what is left of the number ends the choice, where
    that code tries the next.
    """

    def __init__(
        self, tokenizer, *, rate=0.15, mask_share=0.8, random_share=0.1, whole_words=False, selected_positions=False
    ):
        _check(tokenizer, rate, mask_share, random_share)
        self.mask_id = tokenizer.mask_id
        self.rate = rate
        self.mask_share = mask_share
        self.random_share = random_share
        self.selected_positions = selected_positions
        self._is_special = np.zeros(tokenizer.vocabulary_size, bool)
        self._is_special[list(tokenizer.special_ids)] = True
        self._ordinary_ids = np.flatnonzero(~self._is_special).astype("int32")
        self._continues = np.array(_continuations(tokenizer)) if whole_words else None

    @property
    def num_arrays(self):
        """int: how many arrays a call gives."""
        return 3 if self.selected_positions else 2

    def __call__(self, token_ids, padding_mask, seed):
        token_ids = np.asarray(token_ids, "int32")
        random = np.random.default_rng(seed)
        candidates = np.asarray(padding_mask, bool) & ~self._is_special[token_ids]
        chosen = self._choose(token_ids, candidates, random)
        masked = np.where(chosen, self._hide(token_ids, random), token_ids)
        labels = np.where(chosen, token_ids, np.int32(IGNORE_ID))
        if not self.selected_positions:
            return masked, labels
        return masked, *self._selected(chosen, labels)

    def _choose(self, token_ids, candidates, random):
        """Boolean `(B, T)`: the tokens to predict."""
        words = self._words(token_ids, candidates)
        scores = np.take_along_axis(random.random(token_ids.shape), words, axis=1)
        # Candidates first, in the order of the scores of their words; stable, so that the tokens of a word stay together.
        order = np.argsort(np.where(candidates, scores, 2.0), axis=1, kind="stable")
        ranks = np.argsort(order, axis=1, kind="stable")
        wanted = np.maximum(np.rint(self.rate * candidates.sum(axis=1, keepdims=True)), 1)
        if self._continues is None:
            return candidates & (ranks < wanted)
        # A word fits when its last token does; the first word of the order is always taken.
        last = _over_words(np.maximum, np.where(candidates, ranks, 0), words)
        first = _over_words(np.minimum, ranks, words)
        return candidates & ((last < wanted) | (first == 0))

    def _words(self, token_ids, candidates):
        """Int `(B, T)`: the number of the word in its row, from 0; each token is a word unless words stay whole."""
        if self._continues is None:
            return np.broadcast_to(np.arange(token_ids.shape[1]), token_ids.shape)
        after_candidate = np.pad(candidates, [(0, 0), (1, 0)])[:, :-1]
        goes_on = self._continues[token_ids] & candidates & after_candidate
        return np.maximum(np.cumsum(~goes_on, axis=1) - 1, 0)

    def _hide(self, token_ids, random):
        share = random.random(token_ids.shape)
        other = np.where(
            share < self.mask_share + self.random_share, random.choice(self._ordinary_ids, share.shape), token_ids
        )
        return np.where(share < self.mask_share, np.int32(self.mask_id), other)

    def _selected(self, chosen, labels):
        width = max(1, int(np.ceil(self.rate * labels.shape[1])))
        # Chosen places first, in their own order.
        order = np.argsort(~chosen, axis=1, kind="stable")[:, :width].astype("int32")
        real = np.arange(width) < chosen.sum(axis=1, keepdims=True)
        found = np.take_along_axis(labels, order, axis=1)
        return np.where(real, order, 0), np.where(real, found, np.int32(IGNORE_ID))


def _over_words(ufunc, values, words):
    """For each token what `ufunc` makes of the values `(B, T)` of its word."""
    rows = np.arange(len(words))[:, None]
    results = np.full_like(values, -1 if ufunc is np.maximum else values.shape[1])
    ufunc.at(results, (rows, words), values)
    return np.take_along_axis(results, words, axis=1)


def _continuations(tokenizer):
    """For each id whether it goes on with the word before it."""
    tokens = [tokenizer.id_to_token(index) for index in range(tokenizer.vocabulary_size)]
    special = tokenizer.special_ids
    if any(token.startswith(_CONTINUES) and token != _CONTINUES for token in tokens):
        return [token.startswith(_CONTINUES) for token in tokens]
    if any(token.startswith(_BEGINS) for token in tokens):
        return [not token.startswith(_BEGINS) and index not in special for index, token in enumerate(tokens)]
    raise ValueError(f"The vocabulary of this {type(tokenizer).__name__} marks no words ('##', '▁' or 'Ġ').")


def _check(tokenizer, rate, mask_share, random_share):
    if tokenizer.mask_id is None:
        raise ValueError(f"This {type(tokenizer).__name__} has no mask token.")
    if not 0 < rate < 1:
        raise ValueError(f"rate must lie in (0, 1). Received: {rate}")
    if min(mask_share, random_share) < 0 or mask_share + random_share > 1:
        raise ValueError(
            f"mask_share and random_share must add up to 1 at most. Received: {mask_share}, {random_share}"
        )
