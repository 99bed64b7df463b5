"""Replicas and processes of a training: how many there are, which one writes files, and means over the tokens of all."""

from __future__ import annotations

import json
import os

import keras

from keras_transformer.utils.types import Tensor


def cluster_size() -> int:
    """Returns the number of worker processes in TF_CONFIG, this one included; 1 without it."""
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    return max(1, sum(len(cluster.get(job, ())) for job in ("chief", "worker")))


def is_chief(model: keras.Model) -> bool:
    """Whether this process writes the files of all workers that train `model`.

    Example:

    >>> is_chief(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
    True
    """
    if keras.backend.backend() == "tensorflow":
        return bool(model.distribute_strategy.extended.should_checkpoint)
    if keras.backend.backend() == "jax":
        import jax

        return jax.process_index() == 0
    return True


def mean_of_replicas(mean: Tensor, weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """Rescales a replica's weighted mean over tokens so that the mean over replicas is that over the tokens of all.

    Args:
        mean: float `()`, divided by the number of replicas, as Keras does with every loss.
        weights: float32: weights of the tokens of this replica.
        mask: bool of the same shape, or None: False for tokens that are not counted.

    Returns:
        The rescaled mean. Outside of `tf.distribute` it is `mean`: JAX computes on the whole batch.
    """
    if keras.backend.backend() != "tensorflow":
        return mean
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas == 1 or tf.distribute.in_cross_replica_context():
        return mean
    here = tf.reduce_sum(weights if mask is None else weights * tf.cast(mask, weights.dtype))
    total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, here)
    return mean * tf.math.divide_no_nan(replicas * here, total)


def share_of_replica(loss: Tensor) -> Tensor:
    """A loss divided by the number of replicas of `tf.distribute`, as Keras does with the losses that it reduces itself."""
    if keras.backend.backend() != "tensorflow":
        return loss
    import tensorflow as tf

    return loss / tf.distribute.get_strategy().num_replicas_in_sync
