"""A line for each new shape of the batches, and a warning when they keep coming."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_transformer.data.batch_stream import BatchStream
from keras_transformer.utils.types import Tensors

if TYPE_CHECKING:
    import tensorflow as tf

# By position in what `fit` takes, for parts without a name.
_PARTS = ("inputs", "labels", "sample_weight")


def log_shapes(batches: BatchStream | tf.data.Dataset, max_shapes: int = 16) -> BatchStream | tf.data.Dataset:
    """Prints a line when a batch has shapes that no batch had before: XLA compiles the training step for each of them.

    JAX always compiles with XLA, TensorFlow with `jit_compile`. A compilation takes seconds to minutes, so a training should
    have few shapes, all of them in its first epoch: those of `bucket_batches`, which has one for each of its
    `padded_lengths`, or the single one of `pack`. Lines go to standard error, some steps ahead of the training, as batches
    are read.

    Args:
        batches: `BatchStream` or `tf.data.Dataset`.
        max_shapes: int >= 1. With more shapes than this a `UserWarning` says so, once. Default 16.

    Returns:
        The same batches, a `BatchStream` or `tf.data.Dataset`.

    Raises:
        ValueError: `max_shapes` below 1.

    Example:

    >>> from keras_transformer.data import bucket_batches
    >>> batches = bucket_batches({"token_ids": [[5, 6], [8] * 9]}, [1, 0], tokens_per_batch=16, shuffle=False)
    >>> logged = log_shapes(batches)
    >>> for batch in (logged[step] for step in (0, 1, 0, 1)):  # Two lines: one for (2, 8) and one for (1, 16).
    ...     pass
    """
    if max_shapes < 1:
        raise ValueError(f"max_shapes must be at least 1. Received: {max_shapes}")
    if not isinstance(batches, BatchStream):
        return _in_dataset(batches, max_shapes)
    seen = _Shapes(_names(batches[0]), max_shapes, len(batches.padded_lengths))

    def make(epoch, step):
        batch = batches[epoch * len(batches) + step]
        seen.add([np.shape(part) for part in keras.tree.flatten(batch)])
        return batch

    logged = BatchStream(make, len(batches), fingerprint=batches.fingerprint, fixed_shapes=batches.fixed_shapes)
    logged.dropped, logged.padded_lengths = batches.dropped, batches.padded_lengths
    logged.efficiency = batches.efficiency
    return logged


def _in_dataset(batches, max_shapes):
    import tensorflow as tf

    seen = _Shapes(_names(batches.element_spec), max_shapes)

    def mapped(*parts: object) -> Tensors:
        batch: object = parts[0] if len(parts) == 1 else parts
        flat = tf.nest.flatten(batch)
        noted = tf.numpy_function(lambda *shapes: seen.add(shapes), [tf.shape(part) for part in flat], [])
        with tf.control_dependencies([noted]):
            return tf.nest.pack_sequence_as(batch, [tf.identity(part) for part in flat])

    return batches.map(mapped)


class _Shapes:
    """The shapes of the batches so far.

    Args:
        names: names of the parts of a batch.
        max_shapes: int. The number of shapes after which to warn.
        expected: int. The number of shapes that there will be; 0 if that is unknown.
    """

    def __init__(self, names: Sequence[str], max_shapes: int, expected: int = 0) -> None:
        self._names, self._max_shapes = names, max_shapes
        self._of = f" of {expected}" if expected else ""
        self._seen: set[tuple] = set()
        self._batches = 0

    def add(self, shapes: Sequence[Sequence[int]]) -> None:
        """Notes the shapes of a batch."""
        self._batches += 1
        found = tuple(tuple(int(size) for size in shape) for shape in shapes)
        if found in self._seen:
            return
        self._seen.add(found)
        parts = ", ".join(f"{name} {shape}" for name, shape in zip(self._names, found, strict=True))
        line = f"batch {self._batches} has new shapes, {len(self._seen)}{self._of}: {parts}"
        print(line, file=sys.stderr, flush=True)
        if len(self._seen) == self._max_shapes + 1:
            warnings.warn(
                f"{len(self._seen)} shapes in {self._batches} batches: XLA compiles the training step for each. "
                "Pad to few lengths with data.bucket_batches, or fill rows of one length with data.pack.",
                stacklevel=2,
            )


def _names(batch):
    """The names of the parts of a batch, in the order in which they are flattened."""
    names = []
    for path, _ in keras.tree.flatten_with_path(batch):
        last = path[-1] if path else 0
        names.append(last if isinstance(last, str) else _PARTS[min(last, 2)])
    return names
