"""Rows of the relative embedding, by distance and by bucket."""

import numpy as np
import pytest
from keras import ops

from keras_transformer.positions import RelativeEmbedding
from keras_transformer.positions.relative.relative_embedding import log_buckets


def rows(embedding, length):
    return np.asarray(embedding.rows(np.arange(length), np.arange(length)))[0]


def test_rows_of_distances():
    found = rows(RelativeEmbedding(max_distance=3), 9)
    distance = np.arange(9)[:, None] - np.arange(9)
    np.testing.assert_array_equal(found, np.clip(distance + 3, 0, 5))
    np.testing.assert_array_equal(rows(RelativeEmbedding(max_distance=1), 2), [[1, 0], [1, 1]])


def test_positions_of_each_row_of_the_batch():
    embedding = RelativeEmbedding(max_distance=4)
    queries, keys = np.array([[0, 5], [2, 3]]), np.array([[1, 2, 9], [0, 3, 3]])
    expected = np.clip(queries[:, :, None] - keys[:, None] + 4, 0, 7)
    np.testing.assert_array_equal(embedding.rows(queries, keys), expected)


def test_buckets_of_the_published_models():
    """Values of the published formula for 256 buckets up to 512, from torch."""
    found = rows(RelativeEmbedding(512, num_buckets=256), 1200)
    by_distance = {
        0: 256,
        1: 257,
        127: 383,
        128: 384,
        129: 385,
        130: 386,
        200: 425,
        300: 463,
        510: 511,
        511: 511,
        600: 511,
    }
    assert {distance: int(found[distance, 0]) for distance in by_distance} == by_distance
    mirrored = {distance: int(found[0, distance]) for distance in by_distance}
    # The outermost row of later keys is one further away.
    assert mirrored == {distance: 512 - row for distance, row in by_distance.items()} | {600: 0}


def test_the_table_ends_where_both_sides_are_in_the_outermost_row():
    for buckets, distance in ((4, 4), (6, 12), (32, 128), (256, 512), (256, 131072)):
        table = log_buckets(buckets, distance)
        middle = len(table) // 2
        assert (table[0], table[1], table[-1], table[middle]) == (0, 1, 2 * buckets - 1, buckets)
        assert (np.diff(table) >= 0).all()


@pytest.mark.parametrize("embedding", [RelativeEmbedding(5), RelativeEmbedding(12, num_buckets=6, norm="layer_norm")])
@pytest.mark.parametrize("length", [1, 2, 4, 6, 7, 30])
def test_vectors_that_a_length_reaches(embedding, length):
    if not embedding.built:
        embedding.build((None, None, 3))
    expected, _ = embedding.vectors()
    reached = rows(embedding, length)
    for given in (length, np.int32(length)):
        found, first = embedding.vectors(given if given is length else ops.convert_to_tensor(given))
        assert int(first) == reached.min()
        np.testing.assert_allclose(found, expected[:, reached.min() : reached.max() + 1], atol=1e-6)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"max_distance": 0}, "max_distance must be at least 1"),
        ({"max_distance": 512, "num_buckets": 7}, "num_buckets must be even"),
        ({"max_distance": 512, "num_buckets": 2}, "num_buckets must be even and at least 4"),
        ({"max_distance": 5, "num_buckets": 8}, r"max_distance must be in \[6, 131072\]"),
        ({"max_distance": 2**20, "num_buckets": 8}, r"max_distance must be in \[6, 131072\]"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        RelativeEmbedding(**arguments)
