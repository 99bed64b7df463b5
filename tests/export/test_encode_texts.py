"""Texts as the arrays of a signature: segments where it takes them, and which texts are refused."""

import pathlib

import numpy as np
import pytest

from keras_transformer.export.bundle.tokenizers import encode_texts
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.errors import InputError
from keras_transformer.text import WordPiece, from_huggingface

TOKENIZER = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"])
FRAME = {"start": True, "end": True}


def inputs(*names):
    return [ArraySpec(name, "int32", (None, None), ("batch", "length")) for name in names]


def test_segments_are_given_where_the_signature_takes_them():
    names = ("padding_mask", "segment_ids", "token_ids")
    arrays = encode_texts(["the cat", "cat"], TOKENIZER, FRAME, inputs(*names))
    assert set(arrays) == set(names)
    assert arrays["token_ids"].tolist() == [[2, 5, 6, 3], [2, 6, 3, 0]]
    assert arrays["segment_ids"].tolist() == [[0] * 4] * 2
    assert set(encode_texts("cat", TOKENIZER, FRAME, inputs("token_ids"))) == {"token_ids"}
    # Rows of packed documents: their segments are not those of a template.
    packed = encode_texts("cat", TOKENIZER, FRAME, inputs("token_ids", "segment_ids", "positions"))
    assert set(packed) == {"token_ids"}


def test_segments_of_a_template():
    folder = pathlib.Path(__file__).parents[1] / "data" / "tokenizers" / "xlnet"
    tokenizer = from_huggingface(folder)
    arrays = encode_texts("the", tokenizer, tokenizer.template_options, inputs("token_ids", "segment_ids"))
    assert arrays["segment_ids"][0, -1] == 2
    assert not arrays["segment_ids"][0, :-1].any()


def test_an_empty_text_has_the_tokens_of_its_template():
    assert encode_texts("", TOKENIZER, FRAME, inputs("token_ids"))["token_ids"].tolist() == [[2, 3]]
    with pytest.raises(InputError, match="text that has tokens, got '' as number 1"):
        encode_texts(["cat", ""], TOKENIZER, {}, inputs("token_ids"))


def test_what_is_no_text_is_refused():
    with pytest.raises(InputError, match="expected text, got 3 as number 1"):
        encode_texts(["cat", 3], TOKENIZER, FRAME, inputs("token_ids"))


def test_texts_are_truncated_to_max_length():
    arrays = encode_texts("the cat " * 300, TOKENIZER, {**FRAME, "max_length": 4}, inputs("token_ids"))
    np.testing.assert_array_equal(arrays["token_ids"], [[2, 5, 6, 3]])
