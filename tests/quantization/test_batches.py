"""Data in every form that `fit` and TFLite's converter take."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.quantization import WeightQuantizationError
from keras_transformer.quantization.observation.batches import MOST_BATCHES, named_batches

ROWS = np.arange(24, dtype="float32").reshape(6, 4)
OTHERS = ROWS[:, :2] + 100
LABELS = np.zeros(6)
ONE, TWO = {"x": 2}, {"x": 2, "y": 2}


class Pairs(keras.utils.PyDataset):
    """Three batches of two rows and their labels."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        part = slice(2 * index, 2 * index + 2)
        return ROWS[part], LABELS[part]


def single_rows():
    for row in ROWS:
        yield [row[None]]


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (ROWS, 1),
        (ROWS.tolist(), 1),
        (tf.constant(ROWS), 1),
        ({"x": ROWS}, 1),
        ([{"x": ROWS[:2]}, {"x": ROWS[2:]}], 2),
        (({"x": ROWS[:2]}, {"x": ROWS[2:]}), 2),
        ([ROWS[:2], ROWS[2:]], 2),
        (list(ROWS), 6),
        ((ROWS, LABELS), 1),
        (([ROWS], LABELS, LABELS), 1),
        (({"x": ROWS}, LABELS), 1),
        ([(ROWS[:2], LABELS[:2]), (ROWS[2:], LABELS[2:])], 2),
        (single_rows, 6),
        (single_rows(), 6),
        (tf.data.Dataset.from_tensor_slices((ROWS, LABELS)).batch(4), 2),
        (tf.data.Dataset.from_tensor_slices(ROWS), 6),
        (Pairs(), 3),
    ],
)
def test_one_input(data, count):
    batches = list(named_batches(data, ONE))
    assert len(batches) == count
    np.testing.assert_array_equal(np.concatenate([each["x"] for each in batches]), ROWS)


@pytest.mark.parametrize(
    "data",
    [
        {"y": OTHERS, "x": ROWS},
        [ROWS, OTHERS],
        (ROWS, OTHERS),
        ([ROWS, OTHERS], LABELS),
        ({"x": ROWS, "y": OTHERS}, LABELS),
        [([ROWS[:2], OTHERS[:2]], LABELS[:2]), ((ROWS[2:], OTHERS[2:]), LABELS[2:])],
        lambda: ([first, second] for first, second in zip(ROWS, OTHERS, strict=True)),
        tf.data.Dataset.from_tensor_slices(({"x": ROWS, "y": OTHERS}, LABELS)).batch(4),
    ],
)
def test_two_inputs(data):
    batches = list(named_batches(data, TWO))
    for name, expected in {"x": ROWS, "y": OTHERS}.items():
        np.testing.assert_array_equal(np.concatenate([each[name] for each in batches]), expected)


def test_data_without_end_are_read_in_part():
    endless = tf.data.Dataset.from_tensors(ROWS).repeat()
    assert sum(1 for _ in named_batches(endless, ONE)) == MOST_BATCHES


@pytest.mark.parametrize(
    ("data", "ranks", "message"),
    [
        ({"z": ROWS}, ONE, r"a batch has \['z'\]; the model's inputs are \['x'\]"),
        (ROWS, TWO, "a batch has 1 arrays"),
        ([ROWS, ROWS, ROWS], TWO, "a batch has 1 arrays"),
        (None, ONE, "Received: NoneType"),
    ],
)
def test_other_inputs_are_refused(data, ranks, message):
    with pytest.raises(WeightQuantizationError, match=message):
        list(named_batches(data, ranks))
