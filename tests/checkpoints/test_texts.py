"""Texts go in as the folder of a checkpoint says: with its segments, up to its length, and after a reload."""

import functools
import json
import pathlib
import shutil

import numpy as np
import pytest

from keras_transformer import checkpoints, load_model, tasks

DATA = pathlib.Path(__file__).parents[1] / "data" / "checkpoints"


def read(name="sentence-bert"):
    return checkpoints.from_huggingface(DATA / name, verbose=0)


@pytest.fixture
def copy(tmp_path):
    return pathlib.Path(shutil.copytree(DATA / "sentence-bert", tmp_path / "copy"))


def change(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_segments_of_a_single_text_are_zeros():
    tokenizer = read().tokenizer
    arrays = tokenizer(["un able", "un"], **tokenizer.template_options, return_segment_ids=True)
    assert arrays["segment_ids"].shape == arrays["token_ids"].shape
    assert not arrays["segment_ids"].any()


def test_segments_are_those_of_the_template():
    """XLNet's template: segment 0 for the text, 2 for the classification token at its end; padding on the left."""
    from keras_transformer.text import from_huggingface

    tokenizer = from_huggingface(DATA.parent / "tokenizers" / "xlnet")
    arrays = tokenizer(["the cat sat on the mat", "the"], **tokenizer.template_options, return_segment_ids=True)
    for ids, mask, segments in zip(
        *(arrays[name] for name in ("token_ids", "padding_mask", "segment_ids")), strict=True
    ):
        assert segments[mask].tolist() == [0] * (mask.sum() - 1) + [2]
        assert ids[-1] == tokenizer.classification_id


@pytest.mark.parametrize(
    "settings, tokenizer_settings, expected",
    [
        ({"max_seq_length": 6}, {}, 6),
        ({"max_seq_length": None}, {"model_max_length": 9}, 9),
        ({}, {"model_max_length": 512}, 20),
        ({}, {"model_max_length": 10**30}, 20),
    ],
)
def test_texts_are_truncated_to_the_length_of_the_folder(copy, settings, tokenizer_settings, expected):
    change(copy / "sentence_bert_config.json", **settings)
    change(copy / "tokenizer_config.json", **tokenizer_settings)
    model = checkpoints.from_huggingface(copy, verbose=0)
    tokenizer = model.tokenizer
    assert tokenizer.template_options == {"start": True, "end": True, "max_length": expected}
    arrays = tokenizer(["un " * 700], **tokenizer.template_options, return_segment_ids=True)
    assert arrays["token_ids"].shape == (1, expected)
    assert arrays["token_ids"][0, -1] == tokenizer.separator_id
    assert np.isfinite(np.asarray(model(arrays))).all()


@pytest.mark.parametrize("length", ["many", 0, True])
def test_a_length_that_is_none_is_refused(copy, length):
    from keras_transformer.text import InvalidTokenizerError

    change(copy / "sentence_bert_config.json", max_seq_length=length)
    with pytest.raises(InvalidTokenizerError, match="max_seq_length"):
        checkpoints.from_huggingface(copy, verbose=0)


def test_a_text_beyond_the_position_table_is_refused_with_advice():
    model = read()
    arrays = model.tokenizer(["un " * 642], start=True, end=True, return_segment_ids=True)
    with pytest.raises(ValueError, match=r"644 tokens; the position table has 20 rows[\s\S]*max_length=20"):
        model(arrays)


def test_an_empty_text_is_encoded_with_its_template():
    model = read()
    arrays = model.tokenizer([""], **model.tokenizer.template_options, return_segment_ids=True)
    assert arrays["token_ids"].tolist() == [[model.tokenizer.classification_id, model.tokenizer.separator_id]]
    assert np.isfinite(np.asarray(model(arrays))).all()


def test_a_reloaded_model_has_its_tokenizer(tmp_path):
    model = read()
    model.save(tmp_path / "model.keras")
    again = load_model(tmp_path / "model.keras")
    assert again.tokenizer.fingerprint == model.tokenizer.fingerprint
    assert again.tokenizer.template_options == model.tokenizer.template_options
    inputs = model.tokenizer(["un able"], start=True, end=True, return_segment_ids=True)
    np.testing.assert_array_equal(again(inputs), model(inputs))


def test_a_new_head_is_not_dropped_silently(tmp_path):
    head = functools.partial(tasks.SequenceClassifier, num_classes=3)
    model = checkpoints.from_huggingface(DATA / "bert-MaskedLM", task=head, verbose=0)
    with pytest.raises(checkpoints.CheckpointError, match="no weight 'probabilities/kernel'.*omit_new=True"):
        checkpoints.to_huggingface(model, tmp_path / "refused", verbose=0)
    assert not (tmp_path / "refused").exists()
    checkpoints.to_huggingface(model, tmp_path / "backbone", omit_new=True, verbose=0)
    again = checkpoints.from_huggingface(tmp_path / "backbone", task="backbone", verbose=0)
    one, two = model.get_layer("token_embedding"), again.get_layer("token_embedding")
    np.testing.assert_array_equal(one.get_weights()[0], two.get_weights()[0])
