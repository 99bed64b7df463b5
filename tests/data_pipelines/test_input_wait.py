"""The time that steps wait for their batches: of a slow reader, and of one that loads ahead."""

import time

import pytest

from keras_transformer.data import input_wait

READ, STEP = 0.1, 0.2


def slow_reader(count=6):
    for index in range(count):
        time.sleep(READ)
        yield index


def test_a_slow_reader_is_waited_for():
    found = input_wait(slow_reader(), STEP, warm_up=2)
    assert found.steps == 4
    assert found.longest >= found.seconds >= READ
    assert found.share == pytest.approx(found.seconds / (found.seconds + STEP))


def test_loading_ahead_hides_the_time_of_reading():
    import tensorflow as tf

    dataset = tf.data.Dataset.from_generator(slow_reader, output_signature=tf.TensorSpec((), tf.int32))
    assert input_wait(dataset.prefetch(2), STEP, warm_up=2).seconds < READ / 2


def test_refusals():
    for name, value in (("step_seconds", -1), ("steps", 0), ("warm_up", -1)):
        with pytest.raises(ValueError, match=name):
            input_wait(slow_reader(), **{"step_seconds": 0.0, name: value})
    with pytest.raises(ValueError, match="only 2 batches"):
        input_wait(slow_reader(2), 0.0)
