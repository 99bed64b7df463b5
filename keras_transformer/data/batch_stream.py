"""Batches that are a function of the step alone, so that a training can go on from any of them."""

import numpy as np


class BatchStream:
    """An endless sequence of batches, each a pure function of its step: epoch after epoch, from any step on.

    `model.fit(train.repeat(), steps_per_epoch=len(train), epochs=...)` trains on it, and a `TrainingCheckpoint` with this
    stream resumes at the right batch. `epoch()` is one pass, for `validation_data`. Under a `tf.distribute` strategy each
    worker takes its rows of every batch, so that the workers together take the batches of a single one.

    Args:
        make: function of two ints, epoch and step within it, to a batch: arrays in dicts and tuples, as `fit` takes them.
            The same epoch and step must give the same batch.
        steps_per_epoch: int >= 1.
        fingerprint: str. Names the data, seed and settings: a checkpoint refuses to go on with others.
        fixed_shapes: bool. Whether all batches have the shapes of the first. Defaults to False: only ranks are the same.

    Example:

    >>> import numpy as np
    >>> batches = BatchStream(lambda epoch, step: np.array([epoch, step]), steps_per_epoch=3)
    >>> [batch.tolist() for batch in batches.epoch(7).as_numpy_iterator()]
    [[7, 0], [7, 1], [7, 2]]
    >>> batches.first_step = 5  # What a checkpoint does.
    >>> [batch.tolist() for batch in batches.repeat().take(2).as_numpy_iterator()]
    [[1, 2], [2, 0]]
    """

    def __init__(self, make, steps_per_epoch, *, fingerprint="", fixed_shapes=False):
        if steps_per_epoch < 1:
            raise ValueError(f"steps_per_epoch must be at least 1. Received: {steps_per_epoch}")
        self._make = make
        self.steps_per_epoch = int(steps_per_epoch)
        self.fingerprint = fingerprint
        self.fixed_shapes = fixed_shapes
        # Where `repeat` begins; read anew each time that it is iterated over.
        self.first_step = 0

    def __len__(self):
        return self.steps_per_epoch

    def __getitem__(self, step):
        """The batch of a step that counts on from epoch to epoch."""
        return self._make(*divmod(int(step), self.steps_per_epoch))

    def with_inputs(self, names):
        """The same batches with these of their inputs alone, for a model that does not take the others.

        Args:
            names: iterable of str, such as `model.input` of a functional model with named inputs.
        """
        names = tuple(names)

        def make(epoch, step):
            inputs, *rest = self._make(epoch, step)
            return {name: inputs[name] for name in names}, *rest

        return BatchStream(make, len(self), fingerprint=self.fingerprint, fixed_shapes=self.fixed_shapes)

    def repeat(self):
        """An endless `tf.data.Dataset` from `first_step` on, epoch after epoch."""
        import tensorflow as tf

        def from_first_step(_):
            first = tf.numpy_function(lambda: np.int64(self.first_step), [], tf.int64)
            return tf.data.Dataset.range(first, tf.int64.max)

        return self._dataset(tf.data.Dataset.from_tensors(0).flat_map(from_first_step))

    def epoch(self, index=0):
        """A `tf.data.Dataset` of known length: the batches of one epoch."""
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


def by_rows(dataset):
    """A data set of whole batches that workers under `tf.distribute` share row by row, as there are no files to share."""
    import tensorflow as tf

    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)
