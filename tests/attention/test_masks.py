import numpy as np
import pytest

from keras_transformer.attention import masks
from keras_transformer.attention.masks import Visibility, length_mask


def test_one_length_for_each_example():
    assert np.asarray(length_mask([0, 2, 3], 3)).astype(int).tolist() == [[0, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_one_length_for_each_query():
    mask = np.asarray(length_mask([[1, 2], [0, 3]], 3)).astype(int)
    assert mask.tolist() == [[[1, 0, 0], [1, 1, 0]], [[0, 0, 0], [1, 1, 1]]]


def test_causality_goes_by_slots_of_each_row():
    visibility = Visibility(causal=True, query_slots=np.array([[0, 1], [2, 3]]), key_slots=np.arange(4))
    expected = [[[[1, 0, 0, 0], [1, 1, 0, 0]]], [[[1, 1, 1, 0], [1, 1, 1, 1]]]]
    assert np.asarray(visibility.dense()).astype(int).tolist() == expected


def test_window_is_two_sided_and_one_sided_when_causal():
    slots = np.arange(4)
    band = Visibility(window=2, query_slots=slots, key_slots=slots)
    assert np.asarray(band.dense())[0, 0].astype(int).tolist() == [
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [0, 1, 1, 1],
        [0, 0, 1, 1],
    ]
    causal = Visibility(window=2, causal=True, query_slots=slots, key_slots=slots)
    assert np.asarray(causal.dense())[0, 0].astype(int).tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
    ]


def test_parts_are_joined_by_and():
    visibility = Visibility(
        query_mask=np.array([[True, True, False]]),
        key_mask=np.array([[True, False, True]]),
        attention_mask=np.array([[1, 1, 0], [1, 1, 1], [1, 1, 1]], bool),
    )
    assert np.asarray(visibility.dense())[0, 0].astype(int).tolist() == [[1, 0, 0], [1, 0, 1], [0, 0, 0]]


def test_no_mask_at_all_is_none():
    assert Visibility().dense() is None
    assert not Visibility().can_mask_all_keys


def test_mask_of_wrong_rank_is_refused():
    with pytest.raises(ValueError, match="attention_mask"):
        Visibility(attention_mask=np.ones(3, bool)).dense()


def test_causal_mask_of_a_square_batch():
    """B = T = S: the case in which an addition that takes a column for a bias goes wrong."""
    slots = np.array([[0, 1, 2], [1, 2, 3], [2, 3, 4]])
    mask = np.asarray(masks.causal_mask(slots, np.arange(3)))
    assert mask.shape == (3, 1, 3, 3)
    assert mask[:, 0].sum(axis=(1, 2)).tolist() == [6, 8, 9]
