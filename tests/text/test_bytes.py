"""One token per byte."""

import pytest

from keras_transformer.text import Bytes, EmptyTextError, TextError


def test_ids_by_hand():
    tokenizer = Bytes()
    assert tokenizer.encode("A😀") == [4 + 0x41, 4 + 0xF0, 4 + 0x9F, 4 + 0x98, 4 + 0x80]
    assert tokenizer.encode_with_offsets("é!") == ([4 + 0xC3, 4 + 0xA9, 4 + 0x21], [(0, 1), (0, 1), (1, 2)])
    assert tokenizer.decode([4 + 0xC3, 2, 4 + 0xA9]) == "é"
    # ByT5's ids.
    byt5 = Bytes(special_tokens={"pad": "<pad>", "end": "</s>", "additional": ["<unk>"]})
    assert byt5.encode("a", end=True) == [100, 1]


def test_training_checks_its_arguments():
    assert Bytes.train(["a"], 300).vocabulary_size == 260
    with pytest.raises(TextError, match="at least 260"):
        Bytes.train(["a"], 259)
    with pytest.raises(EmptyTextError):
        Bytes.train([""])
