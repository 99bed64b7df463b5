import collections

import numpy as np
import pytest

from keras_transformer.data import Ragged, SequenceDataError, bucket_batches, next_token, sequence_to_sequence

RANDOM = np.random.default_rng(0)
# Every sequence is known by its first token.
SOURCES = [[1000 + index, *RANDOM.integers(3, 99, length)] for index, length in enumerate(RANDOM.integers(0, 40, 150))]
TARGETS = [[2000 + index, *RANDOM.integers(3, 99, length)] for index, length in enumerate(RANDOM.integers(1, 30, 150))]


def pairs(**options):
    return bucket_batches(*sequence_to_sequence(SOURCES, TARGETS), tokens_per_batch=160, **options)


def epoch(batches, index):
    return [batches[index * len(batches) + step] for step in range(len(batches))]


def examples(batches):
    """The source and target of every row, as the masks and labels give them back."""
    for inputs, labels in batches:
        for row in range(len(labels)):
            source = inputs["source_token_ids"][row][inputs["source_padding_mask"][row]].tolist()
            target = inputs["target_token_ids"][row][inputs["target_padding_mask"][row]].tolist()
            real = labels[row][labels[row] != -100].tolist()
            if source or target:
                assert target[1:] == real[:-1]
                assert len(target) == len(real)
                yield source, [target[0], *real]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("fill", [True, False])
def test_every_pair_is_met_once_an_epoch(shuffle, fill):
    batches = pairs(shuffle=shuffle, fill=fill, seed=1)
    for index in (0, 3):
        met = sorted(examples(epoch(batches, index)))
        assert met == sorted(zip(SOURCES, TARGETS, strict=True))


def test_budget_shapes_and_neighbors():
    batches = pairs(seed=1)
    shapes = collections.Counter(labels.shape for _, labels in epoch(batches, 0))
    assert {shape[1] for shape in shapes} == {8, 16, 24, 32, 40} == set(batches.padded_lengths)
    assert all(rows == 160 // length for rows, length in shapes)  # One shape a length.
    for inputs, _ in epoch(batches, 0):
        length = inputs["source_token_ids"].shape[1]
        longest = np.maximum(inputs["source_padding_mask"].sum(1), inputs["target_padding_mask"].sum(1))
        assert longest.max() <= length
        assert ((longest == 0) | (longest > length - 8)).all()  # Nothing is padded further than it must be.


def test_unfilled_batches_have_only_real_rows():
    for inputs, _ in epoch(pairs(fill=False), 0):
        assert inputs["source_padding_mask"].any(1).all()


def test_padding_and_ignored_labels():
    inputs, labels = bucket_batches(
        {"token_ids": [[5, 6], [7]], "segment_ids": [[1, 1], [1]]},
        [[8, 9], [4]],
        tokens_per_batch=12,
        multiple=4,
        shuffle=False,
        padding_id=99,
        ignore_id=-1,
    )[0]
    assert inputs["token_ids"].tolist() == [[5, 6, 99, 99], [7, 99, 99, 99], [99] * 4]
    assert inputs["segment_ids"].tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [0] * 4]
    assert inputs["padding_mask"].tolist() == [[True, True, False, False], [True, False, False, False], [False] * 4]
    assert labels.tolist() == [[8, 9, -1, -1], [4, -1, -1, -1], [-1] * 4]


def test_one_label_a_row_and_none():
    columns = {"token_ids": [[5], [6, 7], [8]]}
    inputs, labels = bucket_batches(columns, [2, 0, 1], tokens_per_batch=32, shuffle=False)[0]
    assert labels.tolist() == [2, 0, 1, -100]
    assert set(bucket_batches(columns, tokens_per_batch=32)[0]) == {"token_ids", "padding_mask"}
    weights = np.array([[0.5, 1], [2, 3], [4, 5]])
    inputs, labels = bucket_batches(columns, weights, tokens_per_batch=24, shuffle=False)[0]
    np.testing.assert_array_equal(labels, weights)


def test_next_token_labels():
    inputs, labels = bucket_batches(*next_token([[1, 2, 3]]), tokens_per_batch=4, multiple=4)[0]
    assert inputs["token_ids"].tolist() == [[1, 2, 0, 0]]
    assert inputs["padding_mask"].tolist() == [[True, True, False, False]]
    assert labels.tolist() == [[2, 3, -100, -100]]


def same(some, others):
    return all(
        np.array_equal(one[0][name], other[0][name]) and np.array_equal(one[1], other[1])
        for one, other in zip(some, others, strict=True)
        for name in one[0]
    )


def first_tokens(batches):
    return [inputs["source_token_ids"][:, 0].tolist() for inputs, _ in batches]


def test_seed_epoch_and_step_decide_all():
    one, again, other = pairs(seed=1), pairs(seed=1), pairs(seed=2)
    # In any order of asking.
    assert same([again[step] for step in (40, 3, 12)], [one[step] for step in (40, 3, 12)])
    assert same(epoch(one, 2), epoch(again, 2))
    assert first_tokens(epoch(one, 0)) != first_tokens(epoch(one, 1))
    assert first_tokens(epoch(one, 0)) != first_tokens(epoch(other, 0))
    # Neighbors change too, not only the order of batches.
    assert sorted(map(sorted, first_tokens(epoch(one, 0)))) != sorted(map(sorted, first_tokens(epoch(one, 1))))
    assert one.fingerprint == again.fingerprint != other.fingerprint


def test_unshuffled_keeps_the_order_within_a_bucket():
    for inputs, _ in epoch(pairs(shuffle=False), 4):
        first = inputs["source_token_ids"][:, 0]
        assert (np.diff(first[first > 0]) > 0).all()


def test_dataset_goes_on_from_any_step():
    batches = pairs(seed=5)
    size = len(batches)
    assert int(batches.epoch(1).cardinality()) == size
    assert same(list(batches.epoch(1).as_numpy_iterator()), epoch(batches, 1))
    dataset = batches.repeat()
    batches.first_step = size - 2
    some = list(dataset.take(4).as_numpy_iterator())
    assert same(some, [batches[step] for step in range(size - 2, size + 2)])
    batches.first_step = 0
    assert same(list(dataset.take(1).as_numpy_iterator()), [batches[0]])


def test_longer_ones_are_left_out_only_when_asked():
    batches = pairs(max_length=16)
    short = [max(len(source), len(target) - 1) <= 16 for source, target in zip(SOURCES, TARGETS, strict=True)]
    assert batches.dropped == 150 - sum(short) > 0
    assert len(list(examples(epoch(batches, 0)))) == sum(short)
    assert pairs().dropped == 0


def test_growth_makes_fewer_lengths():
    long = {"token_ids": [[1] * 500]}
    lengths = bucket_batches(long, tokens_per_batch=1000, growth=2).padded_lengths
    assert lengths == (8, 16, 32, 64, 128, 256, 512)
    assert bucket_batches(long, tokens_per_batch=1000, growth=1).padded_lengths == tuple(range(8, 505, 8))


def test_from_disk(tmp_path):
    columns = {"token_ids": Ragged.write(tmp_path, SOURCES)}
    there, here = (bucket_batches(some, tokens_per_batch=80) for some in (columns, {"token_ids": SOURCES}))
    for step in range(len(here)):
        np.testing.assert_array_equal(there[step]["token_ids"], here[step]["token_ids"])


@pytest.mark.parametrize(
    "inputs, labels, options, message",
    [
        ({"token_ids": [[1] * 9, [1] * 20]}, None, {"tokens_per_batch": 16}, "Example 1 has 20 tokens, padded to 24"),
        ({"token_ids": [[1], [2]]}, [1], {}, "equal numbers.*'token_ids': 2, 'labels': 1"),
        ({"token_ids": []}, None, {}, "There are no examples.$"),
        ({"token_ids": [[1, 2]]}, None, {"max_length": 1}, "none of 1 is at most max_length=1"),
        ({"token_ids": [["a"]]}, None, {}, "token_ids: Expected sequences of integers"),
        ({"pixels": np.zeros((2, 3))}, None, {}, "No input consists of sequences"),
    ],
)
def test_refuses_data(inputs, labels, options, message):
    with pytest.raises(SequenceDataError, match=message):
        bucket_batches(inputs, labels, **options)


@pytest.mark.parametrize("options", [{"tokens_per_batch": 0}, {"multiple": 0}, {"growth": 0.5}, {"seed": -1}])
def test_refuses_arguments(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        bucket_batches({"token_ids": [[1]]}, **options)
