"""Pairs of texts."""

import random

import pytest

from keras_transformer.text import Bytes, SpecialTokenError, TextError, WordPiece
from keras_transformer.text.pairs import truncate_longest_first

TOKENIZER = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "d"])


def test_bert_order():
    assert TOKENIZER.encode_pair("a b", "c") == ([2, 4, 5, 3, 6, 3], [0, 0, 0, 0, 1, 1])
    assert TOKENIZER.encode_pair(["a b", "d"], ["c", ""]) == (
        [[2, 4, 5, 3, 6, 3], [2, 7, 3, 3]],
        [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1]],
    )
    tokenizer = Bytes()
    assert tokenizer.encode_pair("a", "b") == ([1, 4 + ord("a"), 2, 4 + ord("b"), 2], [0, 0, 0, 1, 1])


def test_longest_is_cut_first():
    assert TOKENIZER.encode_pair("a a a a a", "b b", max_length=7) == ([2, 4, 4, 3, 5, 5, 3], [0, 0, 0, 0, 1, 1, 1])
    assert TOKENIZER.encode_pair("a", "b b b b", max_length=6) == ([2, 4, 3, 5, 5, 3], [0, 0, 0, 1, 1, 1])
    assert TOKENIZER.encode_pair("a a", "b b", max_length=3) == ([2, 3, 3], [0, 0, 1])


def test_truncation_is_one_token_at_a_time():
    generator = random.Random(0)
    for _ in range(300):
        first, second = list(range(generator.randrange(12))), list(range(generator.randrange(12)))
        length = generator.randrange(20)
        one, two = list(first), list(second)
        while len(one) + len(two) > length:
            (one if len(one) > len(two) else two).pop()
        assert truncate_longest_first(first, second, length) == (one, two)


def test_errors():
    with pytest.raises(TextError, match="same length"):
        TOKENIZER.encode_pair(["a"], ["b", "c"])
    with pytest.raises(TextError, match="same length"):
        TOKENIZER.encode_pair("a", ["b"])
    with pytest.raises(TextError, match="max_length must be at least 3, for the special tokens"):
        TOKENIZER.encode_pair("a", "b", max_length=2)
    with pytest.raises(SpecialTokenError, match="no start and no classification token"):
        Bytes(special_tokens={}).encode_pair("a", "b")
