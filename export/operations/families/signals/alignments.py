"""Connectionist temporal classification: labels of sequences, between which there are blanks."""

from __future__ import annotations

import tensorflow as tf

from keras_transformer.export.operations.operation import ONNX, Decomposed, Operation, Refused, in_both
from keras_transformer.utils.types import Tensor


def greedy_labels(
    scores: Tensor, lengths: Tensor, *, merge_repeated: bool, blank_index: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The best label of each step, without blanks and repetitions: a sparse tensor `(batch, labels)`.

    Args:
        scores: (steps, batch, labels).
        lengths: the number of steps of each sequence.
        merge_repeated: whether a label that follows itself counts once.
        blank_index: the label that stands for none; from the end where it is below 0.
    """
    steps, labels = tf.shape(scores)[0], tf.shape(scores)[2]
    best = tf.transpose(tf.argmax(scores, 2, tf.int32))
    is_read = tf.expand_dims(tf.range(steps), 0) < tf.expand_dims(lengths, 1)
    blank = blank_index if blank_index >= 0 else labels + blank_index
    is_label = tf.logical_and(is_read, tf.not_equal(best, blank))
    if merge_repeated:
        before = tf.pad(best[:, :-1], [[0, 0], [1, 0]], constant_values=-1)
        is_label = tf.logical_and(is_label, tf.not_equal(best, before))
    counts = tf.cumsum(tf.cast(is_label, tf.int32), 1)
    places = tf.where(is_label)
    indices = tf.stack([places[:, 0], tf.cast(tf.gather_nd(counts, places), tf.int64) - 1], 1)
    values = tf.cast(tf.gather_nd(best, places), tf.int64)
    longest = tf.reduce_max(tf.pad(counts[:, -1:], [[0, 1], [0, 0]]))
    shape = tf.cast(tf.stack([tf.shape(scores)[1], longest]), tf.int64)
    highest = tf.where(is_read, tf.transpose(tf.reduce_max(scores, 2)), tf.zeros_like(best, scores.dtype))
    return indices, values, shape, -tf.reduce_sum(highest, 1, keepdims=True)


_GREEDY = Decomposed(greedy_labels, ("merge_repeated", "blank_index"))

_BEAM = Refused(
    "no operator of the format searches the best prefixes of labels",
    "decode with keras.ops.ctc_decode(..., strategy='greedy'), or let the model return its logits and search them outside",
)


def zeros(shape: Tensor, *, dtype: tf.DType) -> Tensor:
    """A tensor that the loop of a loss fills."""
    return tf.zeros(shape, dtype)


OPERATIONS = (
    Operation("Empty", {ONNX: Decomposed(zeros, ("dtype",))}),
    Operation("CTCBeamSearchDecoder", in_both(_BEAM)),
    Operation("CTCGreedyDecoder", in_both(_GREEDY), rounds=True),
)
