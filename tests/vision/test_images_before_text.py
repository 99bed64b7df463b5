"""Images, prompts and answers as rows of tokens."""

import numpy as np
import pytest

from keras_transformer.text import Characters
from keras_transformer.vision import FillImages, ImageError, ImageProcessor, ImagesBeforeText

PICTURE = np.full((5, 5, 3), 255, "uint8")
TOKENIZER = Characters("abc[\n")
IMAGE = TOKENIZER.token_to_id("[")


@pytest.fixture(scope="module")
def prepare():
    return ImagesBeforeText(ImageProcessor((4, 4)), TOKENIZER, IMAGE, num_image_tokens=2)


def ids(text):
    return [TOKENIZER.token_to_id(letter) for letter in text]


def test_prompts(prepare):
    found = prepare([[PICTURE, PICTURE], PICTURE], ["ab", "c"])
    start = [TOKENIZER.start_id]
    assert found["token_ids"] == [[IMAGE] * 4 + start + ids("ab\n"), [IMAGE] * 2 + start + ids("c\n")]
    assert found["images"].shape == (2, 2, 4, 4, 3)
    np.testing.assert_array_equal(found["images"][:, :, 0, 0, 0], [[1, 1], [1, 0]])
    assert prepare(PICTURE, "c")["token_ids"] == found["token_ids"][1:]


def test_answers_are_no_part_of_the_prefix(prepare):
    found = prepare([PICTURE, PICTURE], ["ab", "c"], ["c", "abc"], padding=11)
    assert found["prefix_mask"].sum(axis=1).tolist() == [6, 5]
    assert found["padding_mask"].sum(axis=1).tolist() == [8, 9]
    assert found["token_ids"][0, 6:8].tolist() == [*ids("c"), TOKENIZER.end_id]
    assert found["token_ids"][1, 5:9].tolist() == [*ids("abc"), TOKENIZER.end_id]
    assert not found["prefix_mask"][:, 6:].any()


def test_refusals(prepare):
    with pytest.raises(ImageError, match="images for 1 prompts, but 2 prompts"):
        prepare([PICTURE], ["a", "b"])
    with pytest.raises(ValueError, match="padding"):
        prepare([PICTURE], ["a"], ["b"])
    with pytest.raises(ValueError, match="image_id"):
        ImagesBeforeText(ImageProcessor((4, 4)), TOKENIZER, 99, 2)


def test_placeholders_are_filled_across_calls_with_a_cache():
    layer = FillImages(token_id=9)
    random = np.random.default_rng(0)
    text, images = random.normal(size=(2, 7, 3)), random.normal(size=(2, 2, 2, 3))
    text, images = text.astype("float32"), images.astype("float32")
    token_ids = np.array([[9, 9, 5, 9, 6, 9, 7], [5, 9, 6, 9, 7, 8, 1]], "int32")
    expected = text.copy()
    expected[0, [0, 1, 3, 5]] = images[0].reshape(4, 3)
    expected[1, [1, 3]] = images[1].reshape(4, 3)[:2]
    whole = np.asarray(layer(text, token_ids, encoder_output=images))
    np.testing.assert_array_equal(whole, expected)
    cache = {**layer.init_cache(2, 9), **layer.memory_cache(images)}
    parts = []
    for start, end in ((0, 3), (3, 4), (4, 7)):
        part, cache = layer(text[:, start:end], token_ids[:, start:end], cache=cache, cache_index=start)
        parts.append(part)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), expected)
