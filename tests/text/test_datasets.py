"""Tokenizers in tf.data, every kind."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.text import Bytes, SpecialTokenError, TextError

TEXTS = ["the cat", "", "Männer 你好 x", "sat on"]


@pytest.mark.parametrize("name", ["wordpiece", "unigram", "byte_pair", "characters", "bytes"])
def test_single_strings(made, name):
    tokenizer = made(name)
    dataset = tokenizer.map_dataset(tf.data.Dataset.from_tensor_slices(TEXTS), start=True, end=True, max_length=6)
    assert dataset.element_spec == tf.TensorSpec([None], tf.int32)
    expected = tokenizer.encode(TEXTS, start=True, end=True, max_length=6)
    assert [ids.tolist() for ids in dataset.as_numpy_iterator()] == expected


def test_fields_of_dicts_and_tuples(made):
    for tokenizer in (made("byte_pair"), made("unigram")):
        ids = tokenizer.encode(TEXTS)
        labels = np.arange(4)
        dicts = tf.data.Dataset.from_tensor_slices({"text": TEXTS, "label": labels, "name": TEXTS})
        for element, row, label, text in zip(
            tokenizer.map_dataset(dicts, fields=["text"]).as_numpy_iterator(), ids, labels, TEXTS, strict=True
        ):
            assert element["text"].tolist() == row
            assert element["label"] == label
            assert element["name"].decode() == text
        pairs = tf.data.Dataset.from_tensor_slices((TEXTS, labels, TEXTS[::-1]))
        found = list(tokenizer.map_dataset(pairs).as_numpy_iterator())
        assert [first.tolist() for first, _, _ in found] == ids
        assert [label for _, label, _ in found] == labels.tolist()
        assert [last.tolist() for _, _, last in found] == ids[::-1]
        found = list(tokenizer.map_dataset(pairs, fields=[2]).as_numpy_iterator())
        assert [first.decode() for first, _, _ in found] == TEXTS


def test_batches_with_padding(made):
    tokenizer = made("byte_pair")
    dataset = tokenizer.map_dataset(tf.data.Dataset.from_tensor_slices(TEXTS))
    batch = next(iter(dataset.padded_batch(4, padding_values=tokenizer.pad_id)))
    np.testing.assert_array_equal(batch, tokenizer(TEXTS)["token_ids"])


def test_errors_come_before_the_pipeline_runs():
    tokenizer = Bytes()
    strings = tf.data.Dataset.from_tensor_slices(TEXTS)
    numbers = tf.data.Dataset.range(3)
    with pytest.raises(TextError, match="contains no string"):
        tokenizer.map_dataset(numbers)
    with pytest.raises(TextError, match="'b' is not a scalar string"):
        tokenizer.map_dataset(strings.map(lambda text: {"a": text}), fields=["b"])
    with pytest.raises(TextError, match="None is not a scalar string"):
        tokenizer.map_dataset(strings.batch(2))
    with pytest.raises(TextError, match="fields is for"):
        tokenizer.map_dataset(strings, fields=["a"])
    with pytest.raises(TextError, match="max_length"):
        tokenizer.map_dataset(strings, max_length=0)
    with pytest.raises(SpecialTokenError, match="no start"):
        Bytes(special_tokens={}).map_dataset(strings, start=True)
