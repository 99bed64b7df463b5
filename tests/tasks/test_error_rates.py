"""Word and character error rates."""

import itertools

import numpy as np
import pytest

from keras_transformer.tasks import character_error_rate, edit_distance, word_error_rate


def distance(first, second):
    """The definition."""
    if not first or not second:
        return len(first) + len(second)
    return min(
        distance(first[1:], second) + 1,
        distance(first, second[1:]) + 1,
        distance(first[1:], second[1:]) + (first[0] != second[0]),
    )


def test_edit_distance_is_the_definition():
    words = ["".join(letters) for size in range(4) for letters in itertools.product("ab", repeat=size)] + ["abcba"]
    for first, second in itertools.product(words, repeat=2):
        assert edit_distance(first, second) == distance(first, second), (first, second)


def test_long_sequences():
    rng = np.random.default_rng(0)
    text = rng.integers(0, 5, 400).tolist()
    assert edit_distance(text, text) == 0
    assert edit_distance(text, text[7:]) == 7


def test_rates_are_of_the_corpus():
    texts, references = ["a b c", "x"], ["a c", "x y z w"]
    assert word_error_rate(texts, references) == (1 + 3) / 6
    assert character_error_rate(["abc", ""], ["abd", "xy"]) == 3 / 5


def test_invalid_references():
    with pytest.raises(ValueError, match="one reference per text"):
        word_error_rate(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="empty"):
        word_error_rate(["a"], [" "])
