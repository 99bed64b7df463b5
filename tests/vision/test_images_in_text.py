"""The layers that put images into text: learned queries, and places behind a token."""

import keras
import numpy as np
import pytest

from keras_transformer import load_model, models
from keras_transformer.attention import MultiHeadAttention
from keras_transformer.vision import EachImage, PlaceImages, Resampler, mark_images

BEGIN, LENGTH = 9, 2
# Two images, one, one that is cut off by the end, and more places than images.
TOKEN_IDS = np.array(
    [
        [1, BEGIN, 0, 0, 2, BEGIN, 0, 0],
        [3, 4, 5, BEGIN, 3, 4, 6, 7],
        [2, 2, 2, 2, 2, 2, BEGIN, 0],
        [BEGIN, 0, 0, BEGIN, 0, 0, BEGIN, 0],
    ],
    "int32",
)
PLACES = {0: [2, 3, 6, 7], 1: [4, 5], 2: [7], 3: [1, 2, 4, 5]}


def text_and_images():
    random = np.random.default_rng(0)
    text = random.normal(size=(*TOKEN_IDS.shape, 3)).astype("float32")
    return text, random.normal(size=(len(TOKEN_IDS), 2, LENGTH, 3)).astype("float32")


def expected(text, images):
    result = text.copy()
    for row, places in PLACES.items():
        result[row, places] = images[row].reshape(-1, 3)[: len(places)]
    return result


def test_images_stand_behind_the_token_that_begins_them():
    text, images = text_and_images()
    found = PlaceImages(BEGIN)(text, TOKEN_IDS, encoder_output=images)
    np.testing.assert_array_equal(found, expected(text, images))


@pytest.mark.parametrize("cuts", [(4,), (1, 2, 3, 4, 5, 6, 7), (3, 6)])
def test_read_in_parts_images_stand_where_they_do_read_whole(cuts):
    text, images = text_and_images()
    layer, parts = PlaceImages(BEGIN), []
    cache = {**layer.init_cache(len(text), 11), **layer.memory_cache(images)}
    for start, stop in zip((0, *cuts), (*cuts, 8), strict=True):
        part, cache = layer(text[:, start:stop], TOKEN_IDS[:, start:stop], cache=cache, cache_index=start)
        parts.append(np.asarray(part))
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), expected(text, images))


def test_rows_at_different_places_and_text_that_was_taken_back():
    text, images = text_and_images()
    layer = PlaceImages(BEGIN)
    cache = {**layer.init_cache(len(text), 11), **layer.memory_cache(images)}
    # The second half of these rows is padding, or is read again: here it says that images begin.
    wrong = np.where(np.arange(8) < np.array([[3], [5], [7], [2]]), TOKEN_IDS, BEGIN).astype("int32")
    _, cache = layer(text, wrong, cache=cache, cache_index=0)
    index = np.array([3, 5, 7, 2], "int32")
    rows = np.arange(4)
    part, _ = layer(text[rows, index][:, None], TOKEN_IDS[rows, index][:, None], cache=cache, cache_index=index)
    np.testing.assert_array_equal(np.asarray(part)[:, 0], expected(text, images)[rows, index])


def test_places_need_images():
    text, _ = text_and_images()
    with pytest.raises(ValueError, match="needs encoder_output"):
        PlaceImages(BEGIN)(text, TOKEN_IDS)


def test_marks_make_places():
    assert mark_images(np.array([BEGIN, 4, BEGIN]), BEGIN, 2, placeholder_id=7) == [BEGIN, 7, 7, 4, BEGIN, 7, 7]


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def test_learned_queries_read_features_and_each_other():
    layer = Resampler(3, MultiHeadAttention(1, 4, use_bias=False))
    features = np.random.default_rng(1).normal(size=(2, 5, 4)).astype("float32")
    mask = np.arange(5) < np.array([[5], [3]])
    found = np.asarray(layer(features, padding_mask=mask))
    queries, *kernels = (np.asarray(weight, "float64") for weight in layer.weights)
    query, key, value, output = (kernel.reshape(4, 4) for kernel in kernels)
    for row in range(2):
        read = np.concatenate([features[row][mask[row]], queries])
        weights = softmax(queries @ query @ (read @ key).T / 2.0)
        np.testing.assert_allclose(found[row], weights @ read @ value @ output, atol=1e-5)


def test_queries_that_cannot_read_are_refused():
    with pytest.raises(ValueError, match="positive integer"):
        Resampler(0, MultiHeadAttention(1, 4))
    with pytest.raises(ValueError, match="supports self-attention only"):
        Resampler(2, MultiHeadAttention(1, 4, mechanism="local"))


def test_each_image_is_read_by_itself_and_is_saved(tmp_path):
    encoder = models.ViT(models.Size(1, 8, 2, 16), patch_size=4, image_size=8)
    images = keras.Input((None, 8, 8, 3), name="images")
    model = keras.Model(images, EachImage(encoder, name="each")(images))
    pictures = np.random.default_rng(2).normal(size=(2, 3, 8, 8, 3)).astype("float32")
    found = model.predict(pictures, verbose=0)
    np.testing.assert_allclose(found[1, 2], encoder.predict(pictures[1, 2:], verbose=0)[0], atol=1e-5)
    model.save(tmp_path / "model.keras")
    again = load_model(tmp_path / "model.keras").predict(pictures, verbose=0)
    np.testing.assert_array_equal(again, found)
