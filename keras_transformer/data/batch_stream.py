"""Batches that are a function of the step, so that a training can resume at any step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf


class BatchStream(keras.utils.PyDataset):
    """An infinite sequence of batches over epochs, each a pure function of its step.

    `model.fit(train.repeat(), steps_per_epoch=len(train), epochs=...)` trains on it, and a `TrainingCheckpoint` with this
    stream resumes at the right batch. `model.evaluate(stream)`, `model.predict(stream)` and `validation_data=stream` take
    one pass, the batches of epoch 0. `model.fit(stream)` repeats these in every epoch. `epoch()` is one pass as a
    `tf.data.Dataset`, which loads ahead. Under a `tf.distribute` strategy each
    worker takes its rows of every batch, so that the workers together take the batches of a single one.

    Args:
        make: function of two ints, the epoch and the step within it, that returns a batch: arrays in dicts and tuples, as
            for `fit`. The same epoch and step must return the same batch.
        steps_per_epoch: int >= 1.
        fingerprint: str. Identifies the data, seed and settings: a checkpoint does not resume with others.
        fixed_shapes: bool. Whether all batches have the shapes of the first. Default False: they have the same ranks.

    Attributes:
        first_step: int. First step of `repeat`, read at the start of each iteration.
        dropped: int. Number of examples that were too long for `bucket_batches`.
        padded_lengths: tuple of int. Padded lengths of the batches of `bucket_batches`.
        efficiency: float. Fraction of real tokens in the batches of `pack`.

    Example:

    >>> import numpy as np
    >>> batches = BatchStream(lambda epoch, step: np.array([epoch, step]), steps_per_epoch=3)
    >>> [batch.tolist() for batch in batches.epoch(7).as_numpy_iterator()]
    [[7, 0], [7, 1], [7, 2]]
    >>> batches.first_step = 5  # As set by a checkpoint.
    >>> [batch.tolist() for batch in batches.repeat().take(2).as_numpy_iterator()]
    [[1, 2], [2, 0]]
    """

    dropped: int = 0
    padded_lengths: tuple[int, ...] = ()
    efficiency: float = 1.0

    def __init__(
        self,
        make: Callable[[int, int], Any],
        steps_per_epoch: int,
        *,
        fingerprint: str = "",
        fixed_shapes: bool = False,
    ) -> None:
        super().__init__()
        if steps_per_epoch < 1:
            raise ValueError(f"steps_per_epoch must be at least 1. Received: {steps_per_epoch}")
        self._make = make
        self.steps_per_epoch = int(steps_per_epoch)
        self.fingerprint = fingerprint
        self.fixed_shapes = fixed_shapes
        # Read by `repeat` at the start of each iteration.
        self.first_step = 0

    def __len__(self) -> int:
        return self.steps_per_epoch

    def __getitem__(self, step: int) -> Any:
        """Returns the batch of a step, which is counted over epochs."""
        return self._make(*divmod(int(step), self.steps_per_epoch))

    def with_inputs(self, names: Iterable[str]) -> BatchStream:
        """Returns the same batches with some of their inputs only, for a model that does not take the others.

        Args:
            names: names of the inputs to keep, such as `model.input` of a functional model with named inputs.
        """
        names = tuple(names)

        def make(epoch, step):
            inputs, *rest = self._make(epoch, step)
            return {name: inputs[name] for name in names}, *rest

        return BatchStream(make, len(self), fingerprint=self.fingerprint, fixed_shapes=self.fixed_shapes)

    def repeat(self) -> tf.data.Dataset:
        """Returns an infinite `tf.data.Dataset` of the batches from `first_step` on, over epochs."""
        import tensorflow as tf

        def from_first_step(_):
            first = tf.numpy_function(lambda: np.int64(self.first_step), [], tf.int64)
            return tf.data.Dataset.range(first, tf.int64.max)

        return self._dataset(tf.data.Dataset.from_tensors(0).flat_map(from_first_step))

    def epoch(self, index: int = 0) -> tf.data.Dataset:
        """Returns a `tf.data.Dataset` of known length with the batches of one epoch."""
        import tensorflow as tf

        first = index * self.steps_per_epoch
        return self._dataset(tf.data.Dataset.range(first, first + self.steps_per_epoch))

    def _dataset(self, steps):
        import tensorflow as tf

        example = tf.nest.map_structure(np.asarray, self[0])
        flat = tf.nest.flatten(example)
        dtypes = [tf.as_dtype(array.dtype) for array in flat]

        def batch(step):
            arrays = tf.numpy_function(lambda step: tf.nest.flatten(self[step]), [step], dtypes)
            for array, like in zip(arrays, flat, strict=True):
                array.set_shape(like.shape if self.fixed_shapes else [None] * like.ndim)
            return tf.nest.pack_sequence_as(example, arrays)

        return by_rows(steps.map(batch).prefetch(4))


def by_rows(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Shards a data set of whole batches by rows under `tf.distribute`, since it has no files to shard."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)
