"""Words split at random."""

import collections

import pytest

from keras_transformer.data.sequences.subword_sampling import SubwordSampling
from keras_transformer.text import Characters, WordPiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["a", "b", "##a", "##b", "ab", "##ab", "aba", "##", "abab", "é"]
TOKENIZER = WordPiece([*SPECIAL, *PIECES], lowercase=False)


def ids(*pieces):
    return [TOKENIZER.token_to_id(piece) for piece in pieces]


def test_without_a_rate_words_are_split_as_by_the_tokenizer():
    rows = TOKENIZER.encode(["abab ab ba", "bab", "abaab a"], start=True, end=True)
    assert SubwordSampling(TOKENIZER, rate=0.0)(rows, seed=3)[0] == rows


def test_the_shortest_pieces_are_left_when_all_longer_ones_are_passed_over():
    row = TOKENIZER.encode("abab ab", start=True)
    rows, sources = SubwordSampling(TOKENIZER, rate=1 - 1e-12)([row])
    assert rows == [ids("[CLS]", "a", "##b", "##a", "##b", "a", "##b")]
    assert sources == [[0, 1, 1, 1, 1, 2, 2]]


def test_sources_are_places_of_the_old_row():
    row = ids("aba", "##b", "b", "##a")
    rows, sources = SubwordSampling(TOKENIZER, rate=1 - 1e-12)([row])
    assert rows == [ids("a", "##b", "##a", "##b", "b", "##a")]
    assert sources == [[0, 0, 0, 0, 2, 2]]


def test_each_split_is_as_likely_as_its_choices():
    count, rate = 20000, 0.25
    rows, _ = SubwordSampling(TOKENIZER, rate)([ids("abab")] * count, seed=1)
    found = collections.Counter(map(tuple, rows))
    taken, passed = 1 - rate, rate
    expected = {
        ("abab",): taken,
        ("aba", "##b"): passed * taken,
        ("ab", "##ab"): passed**2 * taken * taken,
        ("ab", "##a", "##b"): passed**2 * taken * passed,
        # "##ba" is no piece: "##b" is all that fits there.
        ("a", "##b", "##ab"): passed**3 * taken,
        ("a", "##b", "##a", "##b"): passed**3 * passed,
    }
    assert sum(expected.values()) == pytest.approx(1)
    assert {tuple(ids(*split)) for split in expected} == set(found)
    for split, probability in expected.items():
        deviation = (count * probability * (1 - probability)) ** 0.5
        assert abs(found[tuple(ids(*split))] - count * probability) < 4 * deviation


def test_what_cannot_be_spelled_stays():
    # The unknown token, a mask, a piece without its word, and a word whose last character continues no word.
    vocabulary = WordPiece([*SPECIAL, "a", "##b", "abc"], lowercase=False)
    row = [1, 4, *map(vocabulary.token_to_id, ("##b", "abc", "a"))]
    rows, sources = SubwordSampling(vocabulary, rate=0.9)([row[2:], row], seed=2)
    assert rows == [row[2:], row]
    assert sources[0] == [0, 1, 2]


def test_a_seed_makes_the_same_splits_again():
    sampling = SubwordSampling(TOKENIZER, rate=0.5)
    rows = [ids("abab", "aba", "ab")] * 50
    first = sampling(rows, seed=4)
    assert sampling(rows, seed=5) != first
    assert sampling(rows, seed=4) == SubwordSampling(TOKENIZER, rate=0.5)(rows, seed=4) == first


@pytest.mark.parametrize(
    "tokenizer, rate, message",
    [(TOKENIZER, 1.0, "rate"), (TOKENIZER, -0.1, "rate"), (Characters.train(["ab"]), 0.1, "Characters")],
)
def test_refusals(tokenizer, rate, message):
    with pytest.raises(ValueError, match=message):
        SubwordSampling(tokenizer, rate)
