"""Windows over a long text: each token from the window where it stands nearest to the middle."""

import keras
import numpy as np
import pytest

from keras_transformer.models import Encoder, Size, encode_in_windows


def read_by_places(inputs):
    """A state that says which token it is of, and at which place of its window it was read."""
    mask = inputs["padding_mask"]
    places = np.broadcast_to(np.arange(mask.shape[1]), mask.shape)
    return np.stack([inputs["token_ids"], places], axis=-1).astype("float32")


@pytest.mark.parametrize("length", [1, 7, 8, 9, 20, 21, 23, 64])
@pytest.mark.parametrize("window, overlap", [(8, 4), (8, 6), (8, 0), (5, 2)])
def test_each_token_is_read_best(length, window, overlap):
    tokens = np.arange(100, 100 + length)
    states = encode_in_windows(read_by_places, tokens, window, overlap, batch_size=3)
    np.testing.assert_array_equal(states[:, 0], tokens)
    places = states[:, 1].astype(int)
    if length <= window:
        np.testing.assert_array_equal(places, np.arange(length))
        return
    # Half the overlap of context before and after, but for what the text itself lacks.
    for token, place in enumerate(places):
        assert place >= min(token, overlap // 2)
        assert window - 1 - place >= min(length - 1 - token, overlap // 2)


def test_a_short_text_is_what_the_encoder_gives():
    keras.utils.set_random_seed(0)
    encoder = Encoder(Size(1, 8, 2, 16), vocabulary_size=30)
    tokens = np.arange(1, 12)
    expected = encoder({"token_ids": tokens[None], "padding_mask": np.ones((1, 11), bool)})[0]
    np.testing.assert_allclose(encode_in_windows(encoder, tokens, 16, 8), expected, atol=1e-5)


def test_refused():
    with pytest.raises(ValueError, match="must not be empty"):
        encode_in_windows(read_by_places, [])
    for overlap in (3, 8, -2):
        with pytest.raises(ValueError, match="overlap"):
            encode_in_windows(read_by_places, [1], window=8, overlap=overlap)
