"""Training on many devices: replicas that share a batch, and weights that are split."""

import contextlib
import json
import os
import random

import keras

from keras_transformer.backend import keras_private
from keras_transformer.training.errors import DistributionError


def distributed(build, compile_model=None, *, model_parallel=1, devices=None):
    """Builds a model that `fit` trains on all devices: each takes its share of every batch.

    On TensorFlow the model stands under `tf.distribute`: one process a machine where TF_CONFIG names several workers
    (`MultiWorkerMirroredStrategy`; call this before anything else of TensorFlow), else this process alone
    (`MirroredStrategy`). On JAX it stands under `keras.distribution`: `DataParallel`, or `ModelParallel` with
    `models.layout_map`, which from here on holds for all that Keras builds and fits; `keras.distribution.set_distribution(
    None)` ends it.

    Losses are those of one device with the whole batch, up to rounding, for losses that are means over rows of a batch or,
    as `MaskedCrossentropy`, over labeled tokens; dropout draws other numbers. The number of replicas must divide a batch.

    Args:
        build: function of no arguments to a `keras.Model` that is not compiled. For model parallelism it is called twice,
            the first time for shapes alone.
        compile_model: function of the model that compiles it, or None.
        model_parallel: int >= 1, a divisor of the number of devices: so many share the weights of one replica. Above 1 it
            needs JAX. Default 1: each device has all weights.
        devices: list of str, such as "cpu:0" or "gpu:1", or None for all GPUs or TPUs, or, without any, all CPUs.

    Returns:
        The model that `build` returns.

    Raises:
        DistributionError: devices that cannot be divided so; model parallelism on another backend than JAX; an optimizer
            that accumulates gradients, on TensorFlow.

    Example:

    >>> from keras_transformer import models, tasks
    >>> def build():
    ...     return tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=10))
    >>> model = distributed(build, lambda model: model.compile("adam", "mse"), devices=["cpu:0"])
    >>> model.count_params() == build().count_params()
    True
    >>> keras.distribution.set_distribution(None)

    Reference: Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3 (weights split by heads and channels).
    """
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise DistributionError(f"Training on many devices needs TensorFlow or JAX. The backend is {backend}.")
    if backend == "tensorflow":
        if model_parallel != 1:
            raise DistributionError("Weights are split on JAX alone: set KERAS_BACKEND=jax, or model_parallel=1.")
        scope = _strategy(devices).scope()
    else:
        devices = devices or keras.distribution.list_devices()
        if model_parallel < 1 or len(devices) % model_parallel:
            raise DistributionError(f"{len(devices)} devices do not divide into groups of {model_parallel}.")
        keras.distribution.set_distribution(_distribution(build, model_parallel, devices))
        scope = contextlib.nullcontext()
    with scope:
        model = build()
        if compile_model is not None:
            compile_model(model)
    if backend == "tensorflow":
        _refuse_accumulation(model)
        _build_from_one_replica(model)
    if backend == "tensorflow" and cluster_size() > 1:
        model.train_step, model.test_step = _with_an_axis(model.train_step), _with_an_axis(model.test_step)
    return model


def cluster_size():
    """How many worker processes TF_CONFIG names, itself included; 1 without it."""
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    return max(1, sum(len(cluster.get(job, ())) for job in ("chief", "worker")))


def is_chief(model):
    """Whether this process is the one that writes files for all workers that train `model`."""
    if keras.backend.backend() == "tensorflow":
        return model.distribute_strategy.extended.should_checkpoint
    if keras.backend.backend() == "jax":
        import jax

        return jax.process_index() == 0
    return True


def mean_of_replicas(mean, weights, mask=None):
    """A weighted mean over one replica's tokens as its share of the mean over those of all.

    Args:
        mean: float `()`, divided by the number of replicas, as Keras does it to every loss.
        weights: float32: what the tokens of this replica count.
        mask: bool of that shape, or None: False where one counts nothing.

    Returns:
        `mean`, outside of `tf.distribute`: JAX computes on the whole batch, wherever its parts are.
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


def _strategy(devices):
    import tensorflow as tf

    if cluster_size() > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if devices is None:
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        devices = [device.name for device in devices]
    return tf.distribute.MirroredStrategy(devices)


def _refuse_accumulation(model):
    """Keras updates the weights in a branch, where replicas cannot exchange what they must: `fit` would end in an error."""
    if getattr(getattr(model, "optimizer", None), "gradient_accumulation_steps", None):
        raise DistributionError(
            "Keras does not accumulate gradients under tf.distribute: leave gradient_accumulation_steps out. "
            "`recompute_blocks` saves memory there, and JAX does both."
        )


def _build_from_one_replica(model):
    """Lets Keras build metrics and optimizer from the batch of one replica.

    It takes the mean of those of all, for shapes alone; booleans, such as masks, have none, and `fit` ends with an error.
    """
    strategy = model.distribute_strategy

    def from_one_replica(build):
        def symbolic_build(iterator=None, data_batch=None):
            for _, _, data in iterator or ():
                batch = next(data)
                data_batch = keras.tree.map_structure(lambda x: strategy.experimental_local_results(x)[0], batch)
                break
            build(data_batch=data_batch)

        return symbolic_build

    keras_private.wrap_symbolic_build(model, from_one_replica)


def _with_an_axis(step):
    """A step whose results have a first axis of one: over it Keras takes the mean of those of all workers."""

    def with_an_axis(data):
        return keras.tree.map_structure(lambda x: keras.ops.expand_dims(x, 0), step(data))

    return with_an_axis


def _distribution(build, model_parallel, devices):
    from keras_transformer.backend.unallocated import unallocated
    from keras_transformer.models.building.layout_map import layout_map

    if model_parallel == 1:
        return keras.distribution.DataParallel(devices=devices)
    shape = (len(devices) // model_parallel, model_parallel)
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
    before = random.getstate()  # Initializers draw their seeds from it: the model is to begin as it would without this.
    try:
        with unallocated():
            layouts = layout_map(build(), mesh)
    finally:
        random.setstate(before)
    return keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
