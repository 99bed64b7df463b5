import collections

import numpy as np
import pytest

from keras_transformer.data.pretraining.token_masking import TokenMasking
from keras_transformer.text import Characters, WordPiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*"abcdefghijklmnopqrst", *(f"##{letter}" for letter in "uvwxyz")]
TOKENIZER = WordPiece([*SPECIAL, *WORDS])
PAD, CLS, SEP, MASK = 0, 2, 3, 4
FIRST, SIZE = len(SPECIAL), TOKENIZER.vocabulary_size


def rows(count=64, length=40, highest=SIZE):
    """[CLS], tokens, [SEP], then padding that holds tokens by mistake: they must never be chosen."""
    random = np.random.default_rng(0)
    ids = random.integers(FIRST, highest, (count, length)).astype("int32")
    real = np.arange(length) < random.integers(12, length + 1, count)[:, None]
    ids[:, 0] = CLS
    ids[np.arange(count), real.sum(1) - 1] = SEP
    return ids, real


def call(masking, ids, real, seed=(1, 2)):
    return masking(ids, real, seed)


def test_exactly_the_share_of_each_row_and_never_what_is_special_or_padding():
    ids, real = rows()
    _, labels = call(TokenMasking(TOKENIZER, rate=0.15), ids, real)
    chosen = labels != -100
    ordinary = real & (ids >= FIRST)
    assert not (chosen & ~ordinary).any()
    np.testing.assert_array_equal(chosen.sum(1), np.round(0.15 * ordinary.sum(1)))
    np.testing.assert_array_equal(labels[chosen], ids[chosen])


def test_one_token_at_least():
    _, labels = call(TokenMasking(TOKENIZER, rate=0.01), [[CLS, 7, 8, SEP]], [[1, 1, 1, 1]])
    assert (labels != -100).sum() == 1


def test_nothing_to_choose():
    ids = np.array([[CLS, SEP, PAD]], "int32")
    masked, labels = call(TokenMasking(TOKENIZER), ids, [[1, 1, 0]])
    np.testing.assert_array_equal(masked, ids)
    assert (labels == -100).all()


def test_eighty_ten_ten():
    ids, real = rows(count=600)
    masked, labels = call(TokenMasking(TOKENIZER, rate=0.5), ids, real)
    chosen = labels != -100
    np.testing.assert_array_equal(masked[~chosen], ids[~chosen])
    count = chosen.sum()
    is_mask = masked[chosen] == MASK
    random = (masked[chosen] != ids[chosen]) & ~is_mask
    # A random token is the one that stood there once in all tokens.
    ordinary = SIZE - FIRST
    for found, share in ((is_mask.sum(), 0.8), (random.sum(), 0.1 * (1 - 1 / ordinary))):
        deviation = (count * share * (1 - share)) ** 0.5
        assert abs(found - count * share) < 4 * deviation
    drawn = collections.Counter(masked[chosen][random].tolist())
    assert min(drawn) >= FIRST
    assert len(drawn) == ordinary


def test_every_token_is_equally_likely_to_be_chosen():
    masking = TokenMasking(TOKENIZER, rate=0.25)
    ids = np.full((4000, 8), 9, "int32")
    _, labels = call(masking, ids, np.ones_like(ids))
    counts = (labels != -100).sum(0)
    assert counts.sum() == 8000
    assert abs(counts - 1000).max() < 4 * (4000 * 0.25 * 0.75) ** 0.5


def test_whole_words():
    ids, real = rows()
    _, labels = call(TokenMasking(TOKENIZER, rate=0.3, whole_words=True), ids, real)
    continues = np.array([TOKENIZER.id_to_token(index).startswith("##") for index in range(SIZE)])
    for row, chosen, kept in zip(ids, labels != -100, real, strict=True):
        ordinary = np.flatnonzero(kept & (row >= FIRST))
        words = np.split(ordinary, np.flatnonzero(~continues[row[ordinary]])) if len(ordinary) else []
        words = [word for word in words if len(word)]
        assert all(chosen[word].all() or not chosen[word].any() for word in words)
        wanted = max(1, round(0.3 * len(ordinary)))
        # As many as asked for, short of a word that did not fit; the first word may be longer.
        longest = max(map(len, words))
        assert wanted - longest < chosen.sum() <= max(wanted, longest)


def test_words_of_sentencepiece_s_manner():
    tokenizer = _Marked(["<mask>", "▁in", "side", "▁out"])
    ids = np.array([[1, 2, 3, 2, 2]] * 200, "int32")
    _, labels = call(TokenMasking(tokenizer, rate=0.4, whole_words=True), ids, np.ones_like(ids))
    patterns = {tuple(row) for row in (labels != -100).astype(int)}
    assert patterns == {(1, 1, 0, 0, 0), (0, 0, 1, 1, 1)}


class _Marked:
    """A vocabulary that marks where words begin."""

    def __init__(self, tokens):
        self.tokens, self.mask_id, self.special_ids = tokens, 0, {0}
        self.vocabulary_size = len(tokens)

    def id_to_token(self, index):
        return self.tokens[index]


def test_selected_positions_say_the_same():
    ids, real = rows()
    options = {"rate": 0.2, "whole_words": True}
    masked, labels = call(TokenMasking(TOKENIZER, **options), ids, real)
    again, positions, selected = call(TokenMasking(TOKENIZER, **options, selected_positions=True), ids, real)
    np.testing.assert_array_equal(again, masked)
    assert selected.shape[1] == 8  # 0.2 of 40
    rebuilt = np.full_like(labels, -100)
    for row, (places, values) in enumerate(zip(positions, selected, strict=True)):
        rebuilt[row, places[values != -100]] = values[values != -100]
        assert (places[values == -100] == 0).all()
    np.testing.assert_array_equal(rebuilt, labels)


def test_same_seed_same_choice():
    ids, real = rows()
    masking = TokenMasking(TOKENIZER)
    first, again, other = (call(masking, ids, real, seed)[0] for seed in ((3, 4), (3, 4), (3, 5)))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"rate": 0.0}, "rate"),
        ({"rate": 1.0}, "rate"),
        ({"mask_share": 0.8, "random_share": 0.3}, "add up"),
        ({"random_share": -0.1}, "random_share"),
    ],
)
def test_shares_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        TokenMasking(TOKENIZER, **options)


def test_tokenizers_that_cannot_be():
    with pytest.raises(ValueError, match="no mask token"):
        TokenMasking(WordPiece(["[UNK]", "a"]))
    with pytest.raises(ValueError, match="does not mark words"):
        TokenMasking(Characters.train(["abc"], 10), whole_words=True)
