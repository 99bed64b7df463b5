"""One token per character."""

import pytest

from keras_transformer.text import Characters, SpecialTokenError, TextError


def test_ids_by_hand():
    tokenizer = Characters.train(["banana", "a!"])
    # Five special tokens, then the characters in the order of Unicode.
    assert tokenizer.characters == ["!", "a", "b", "n"]
    assert tokenizer.encode("nab!x") == [8, 6, 7, 5, 1]
    assert tokenizer.decode([8, 6, 7, 5, 1]) == "nab!"


def test_most_frequent_are_kept():
    assert Characters.train(["aaabbc", "zzzz"], 7).characters == ["a", "z"]
    # Of equals, the first in Unicode.
    assert Characters.train(["dcba"], 7).characters == ["a", "b"]


def test_bytes_of_other_characters():
    tokenizer = Characters("ab", byte_fallback=True)
    assert tokenizer.vocabulary_size == 5 + 256 + 2
    assert tokenizer.encode("aé") == [261, 5 + 0xC3, 5 + 0xA9]
    assert tokenizer.encode_with_offsets("éa")[1] == [(0, 1), (0, 1), (1, 2)]
    assert tokenizer.token_to_id("<0xC3>") == 5 + 0xC3
    assert tokenizer.unknown_id not in tokenizer.encode("\U0010ffff\x00 <unk>")


def test_errors():
    with pytest.raises(TextError, match="Expected one character. Received: 'ab'"):
        Characters(["a", "ab"])
    with pytest.raises(TextError, match="'a' is a duplicate"):
        Characters("aba")
    with pytest.raises(SpecialTokenError, match="'~' is a single character"):
        Characters("ab", special_tokens={"unknown": "~"})
    with pytest.raises(SpecialTokenError, match="name of a byte token"):
        Characters("ab", byte_fallback=True, special_tokens={"pad": "<0x00>"})
    with pytest.raises(TextError, match="Characters needs an unknown token"):
        Characters("ab", special_tokens={"pad": "<pad>"})
    with pytest.raises(TextError, match="at least 6"):
        Characters.train(["a"], 5)
