"""Softmax over a union of key sets, a part at a time, against softmax over all of them."""

import numpy as np
import pytest

from keras_transformer.attention import SoftmaxAttention, Visibility
from keras_transformer.attention.softmax.partial_softmax import PartialAttention, merge_parts, partial_attention
from keras_transformer.positions import ShawRelative


def arrays(scale=1.0):
    rng = np.random.default_rng(0)
    query = rng.normal(scale=scale, size=(2, 5, 4, 6)).astype("float32")
    key = rng.normal(scale=scale, size=(2, 9, 2, 6)).astype("float32")
    return query, key, rng.normal(size=(2, 9, 2, 3)).astype("float32")


def parts_of(query, key, value, mask, places, position=None):
    """One part for each list of key places."""
    slots, softmax = np.arange(9, dtype="int32"), SoftmaxAttention()
    parts = []
    for chosen in places:
        visibility = Visibility.from_slots(slots[:5], slots[chosen], key_mask=mask[:, chosen])
        parts.append(partial_attention(softmax, query, key[:, chosen], value[:, chosen], visibility, position))
    return parts


@pytest.mark.parametrize("scale", [1.0, 60.0])
@pytest.mark.parametrize("with_position", [False, True])
def test_parts_of_any_size_are_the_whole(scale, with_position):
    """Scores of hundreds neither overflow nor vanish; what is hidden has no weight."""
    query, key, value = arrays(scale)
    mask = np.ones((2, 9), bool)
    mask[0, 2:4] = mask[1, :3] = False
    position = ShawRelative(max_distance=3) if with_position else None  # It reads queries, and adds to the values.
    if with_position:
        position.build(query.shape, value.shape)
    slots = np.arange(9, dtype="int32")
    visibility = Visibility.from_slots(slots[:5], slots, key_mask=mask)
    expected = SoftmaxAttention()(query, key, value, visibility=visibility, position=position)
    for places in ([[0, 1, 2, 3, 4, 5, 6, 7, 8]], [[3], [0, 1, 2], [8, 7, 6, 5, 4]]):
        merged = merge_parts(parts_of(query, key, value, mask, places, position))
        np.testing.assert_allclose(merged, expected, atol=2e-6)


def test_log_sum_is_that_of_the_scores():
    query, key, value = arrays()
    part = partial_attention(SoftmaxAttention(), query, key, value, Visibility())
    scores = np.einsum("btnh,bsnh->btns", query.astype(float), np.repeat(key, 2, axis=2)) / np.sqrt(6)
    np.testing.assert_allclose(np.asarray(part.log_sum_exp)[..., 0], np.log(np.exp(scores).sum(-1)), atol=1e-6)


def test_where_no_part_sees_anything_there_are_zeros():
    query, key, value = arrays()
    mask = np.ones((2, 9), bool)
    mask[1] = False
    merged = np.asarray(merge_parts(parts_of(query, key, value, mask, [[0, 1], [2, 3, 4, 5, 6, 7, 8]])))
    np.testing.assert_array_equal(merged[1], 0)
    assert np.abs(merged[0]).min() > 0


def test_weights_are_the_exponentials_of_the_log_sums():
    parts = [
        PartialAttention(np.full((1, 1, 1, 1), y, "float32"), np.full((1, 1, 1, 1), np.log(z), "float32"))
        for y, z in ((1, 3), (5, 1))
    ]
    np.testing.assert_allclose(np.asarray(merge_parts(parts)).ravel(), [2.0], atol=1e-6)
