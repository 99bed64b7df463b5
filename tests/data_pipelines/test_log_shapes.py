"""Lengths that vary: a line for each shape, a warning for many, and one trace of the training step for each bucket."""

import warnings

import keras
import numpy as np
import pytest

from keras_transformer import data, models, tasks, training

RANDOM = np.random.default_rng(0)
TEXTS = [RANDOM.integers(1, 20, length).tolist() for length in RANDOM.integers(2, 25, 60)]


def buckets(**options):
    return data.bucket_batches(*data.next_token(TEXTS), tokens_per_batch=64, **options)


def lines(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if "new shapes" in line]


def test_one_line_for_each_length(capsys):
    batches = buckets()
    logged = data.log_shapes(batches)
    assert logged.padded_lengths == batches.padded_lengths == (8, 16, 24)
    for step in range(3 * len(batches)):
        for got, expected in zip(*(keras.tree.flatten(each[step]) for each in (logged, batches)), strict=True):
            np.testing.assert_array_equal(got, expected)
    found = lines(capsys)
    assert [line.split(":")[0].split("shapes, ")[1] for line in found] == ["1 of 3", "2 of 3", "3 of 3"]
    shapes = {
        f"padding_mask ({64 // n}, {n}), token_ids ({64 // n}, {n}), labels ({64 // n}, {n})" for n in (8, 16, 24)
    }
    assert {line.split(": ")[1] for line in found} == shapes


def test_lines_of_a_dataset(capsys):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_generator(
        lambda: (np.zeros((2, length), "float32") for length in (3, 3, 5)), tf.float32
    )
    assert [each.shape[1] for each in data.log_shapes(dataset).as_numpy_iterator()] == [3, 3, 5]
    assert [line.split(": ")[1] for line in lines(capsys)] == ["inputs (2, 3)", "inputs (2, 5)"]


def test_shapes_that_keep_coming():
    ragged = data.BatchStream(lambda epoch, step: (np.zeros((2, step + 1)), np.zeros(2)), 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(map(data.log_shapes(ragged, max_shapes=9).__getitem__, range(18)))
    with pytest.warns(UserWarning, match="5 shapes in 5 batches.*bucket_batches") as caught:
        list(map(data.log_shapes(ragged, max_shapes=4).__getitem__, range(9)))
    assert len(caught) == 1
    with pytest.raises(ValueError, match="max_shapes"):
        data.log_shapes(ragged, 0)


class Traced(tasks.LanguageModel):
    """Counts how often its training step is traced, by the length of the rows."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.traces.append(y.shape[1])
        return super().compute_loss(x, y, y_pred, sample_weight, training)


def test_each_bucket_is_traced_once():
    model = Traced(models.Decoder(models.Size(1, 8, 2, 16), 20, max_sequence_length=24))
    model.traces = []
    model.compile("sgd", training.MaskedCrossentropy())
    batches = buckets()
    counts = []
    for _ in range(3):
        model.fit(batches.repeat(), steps_per_epoch=len(batches), epochs=1, verbose=0)
        counts.append(len(model.traces))
    assert counts[0] == counts[2] <= len(batches.padded_lengths) + 1  # Keras calls it once for symbolic inputs.
    if keras.backend.backend() == "jax":
        assert sorted(set(model.traces)) == [8, 16, 24]
    assert len(batches) > 5
