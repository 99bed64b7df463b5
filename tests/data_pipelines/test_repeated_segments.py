import numpy as np
import pytest

from keras_transformer.data import repeated_segment_batches


def test_each_label_follows_the_same_token_in_the_random_part():
    batches = repeated_segment_batches(1000, 64, 3, 5, first_id=10, segment_lengths=(3, 9), seed=4)
    shares = []
    for step in range(5):
        inputs, labels = batches[step]
        assert inputs["token_ids"].shape == labels.shape == (3, 64)
        assert inputs["token_ids"].min() >= 10
        assert inputs["token_ids"].max() > 900
        for row, targets in zip(inputs["token_ids"], labels, strict=True):
            start = int(np.flatnonzero(targets >= 0)[0])  # The segments begin between T/4 and T/2.
            assert 16 <= start <= 33
            pairs = set(zip(row[: start - 1], row[1:start], strict=True))
            assert all((row[i], targets[i]) in pairs for i in np.flatnonzero(targets >= 0))
            np.testing.assert_array_equal(targets[:-1][targets[:-1] >= 0], row[1:][targets[:-1] >= 0])
            shares.append(np.mean(targets >= 0))
    # Of a segment of 3 to 9 tokens, all but the first: 5/6 on average, of half to three quarters of the row.
    assert 0.4 < np.mean(shares) < 0.63


def test_rows_are_decided_by_seed_epoch_and_step():
    def rows(seed, step):
        return repeated_segment_batches(500, 48, 2, 4, seed=seed)[step][0]["token_ids"].tolist()

    assert rows(1, 5) == rows(1, 5)
    drawn = [rows(1, 1), rows(1, 5), rows(2, 1), rows(1, 2)]
    assert all(one != other for index, one in enumerate(drawn) for other in drawn[:index])


@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"vocabulary_size": 5, "first_id": 5}, "vocabulary_size must be at least 6"),
        ({"sequence_length": 47}, "sequence_length must be at least 48"),
        ({"segment_lengths": (1, 12)}, "shortest <= longest"),
        ({"segment_lengths": (5, 4)}, "shortest <= longest"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, match):
    given = {"vocabulary_size": 500, "sequence_length": 48, "batch_size": 2, "steps_per_epoch": 4, **arguments}
    with pytest.raises(ValueError, match=match):
        repeated_segment_batches(**given)
