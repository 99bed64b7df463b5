"""The decoder block of a prefix language model."""

import numpy as np

from keras_transformer.attention import MultiHeadAttention
from keras_transformer.blocks import PrefixDecoderBlock
from keras_transformer.feedforward import DenseFeedForward

X = np.random.default_rng(0).normal(size=(3, 6, 8)).astype("float32")
LENGTHS = np.array([4, 2, 1])
PREFIX = np.arange(6) < LENGTHS[:, None]


def block():
    made = PrefixDecoderBlock(MultiHeadAttention(2, 4, position="rotary"), DenseFeedForward(12))
    made.build(X.shape)
    return made


def test_what_influences_a_token():
    made = block()
    before = np.asarray(made(X, prefix_mask=PREFIX))
    for changed in range(6):
        other = X.copy()
        other[:, changed] += np.random.default_rng(1).normal(size=8)
        moved = np.abs(np.asarray(made(other, prefix_mask=PREFIX)) - before).max(axis=-1) > 1e-5
        for row, length in enumerate(LENGTHS):
            expected = [t >= changed or (t < length and changed < length) for t in range(6)]
            assert moved[row].tolist() == expected


def test_padding_is_no_part_of_a_prefix():
    made, mask = block(), np.arange(6) < np.array([[5], [1], [6]])
    found = np.asarray(made(X, padding_mask=mask, prefix_mask=PREFIX | ~mask))
    other = np.where(mask[..., None], X, 9.0).astype("float32")
    again = np.asarray(made(other, padding_mask=mask, prefix_mask=PREFIX | ~mask))
    np.testing.assert_allclose(found[mask], again[mask], atol=1e-6)


def test_prompts_of_several_lengths_and_then_token_by_token():
    """What is read first is the prefix; rows stand at different places from then on."""
    made = block()
    whole = np.asarray(made(X, prefix_mask=PREFIX))
    prompt = np.where(PREFIX[..., None], X, 5.0).astype("float32")[:, :4]
    cache = made.init_cache(3, 8)
    output, cache = made(prompt, padding_mask=PREFIX[:, :4], cache=cache, cache_index=0)
    np.testing.assert_allclose(np.asarray(output)[PREFIX[:, :4]], whole[PREFIX], atol=1e-5)
    for step in range(2):
        places = LENGTHS + step
        token = X[np.arange(3), places][:, None]
        output, cache = made(token, cache=cache, cache_index=places.astype("int32"))
        np.testing.assert_allclose(np.asarray(output)[:, 0], whole[np.arange(3), places], atol=1e-5)


def test_without_a_prefix_it_is_causal():
    made = block()
    nothing = np.asarray(made(X, prefix_mask=np.zeros_like(PREFIX)))
    np.testing.assert_allclose(np.asarray(made(X)), nothing, atol=1e-6)
    assert not made.cache_is_rewindable
