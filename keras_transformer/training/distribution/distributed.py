"""Training on several devices: data parallelism and model parallelism."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import keras

from keras_transformer.backend import keras_private
from keras_transformer.training.distribution.replica_updates import update_as_one_device
from keras_transformer.training.distribution.replicas import cluster_size
from keras_transformer.training.distribution.sharded_steps import gather_in_steps, split_rows_in_steps
from keras_transformer.training.errors import DistributionError


def distributed(
    build: Callable[[], keras.Model],
    compile_model: Callable[[object], object] | None = None,
    *,
    model_parallel: int = 1,
    sequence_parallel: int = 1,
    fully_sharded: bool = False,
    devices: Sequence[str] | None = None,
) -> keras.Model:
    """Builds a model that `fit` trains on all devices; each processes a part of every batch.

    On TensorFlow the model is built in a `tf.distribute` strategy: `MultiWorkerMirroredStrategy`, one process per machine,
    if TF_CONFIG names several workers (then call this before any other TensorFlow function), otherwise `MirroredStrategy`.
    On JAX it uses `keras.distribution`: `DataParallel`, or `ModelParallel` with `models.layout_map`. The distribution stays
    set for everything that Keras builds and fits later; `keras.distribution.set_distribution(None)` resets it. Devices of
    several processes take part after `jax.distributed.initialize`.

    Losses equal those of one device with the whole batch, up to rounding, if they are means over the rows of a batch or,
    like `MaskedCrossentropy`, over labeled tokens. Dropout masks differ. The number of replicas must divide the batch size.

    Args:
        build: function of no arguments that returns a `keras.Model` that is not compiled. For model parallelism it is called
            twice, the first time for shapes only.
        compile_model: function that compiles the model, or None.
        model_parallel: int >= 1, a divisor of the number of devices: the number of devices that share the weights of one
            replica, layer by layer. Values above 1 need JAX. Default 1.
        sequence_parallel: int >= 1: the number of devices that share the rows of one replica, for rows that are too long for
            one device. `models.Decoder(attention="blockwise")` then computes ring attention. Values above 1 need JAX, and
            the length of rows must divide by it. Default 1.
        fully_sharded: bool. Whether the weights and the optimizer's variables are also split over the replicas, so that each
            device keeps `1 / devices` of them (ZeRO-3); a step gathers those of a layer for its call. With
            `recompute_blocks`, those of one block at a time are whole. Needs JAX. Default False: each replica has all.
        devices: list of str, such as "cpu:0" or "gpu:1"; None for all GPUs or TPUs or, without any, all CPUs.

    Returns:
        The model that `build` returns.

    Raises:
        DistributionError: a number of devices that does not divide by the groups; weights to be split on another backend
            than JAX; on TensorFlow, gradient accumulation together with `steps_per_execution`; `ema_overwrite_frequency`.

    Example:

    >>> from keras_transformer import models, tasks
    >>> def build():
    ...     return tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=10))
    >>> model = distributed(build, lambda model: model.compile("adam", "mse"), devices=["cpu:0"])
    >>> model.count_params() == build().count_params()
    True
    >>> keras.distribution.set_distribution(None)

    Reference: Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3 (weights split by heads and channels);
    Rajbhandari et al., ZeRO, arXiv 1910.02054, section 5 (weights and optimizer split over replicas).
    """
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise DistributionError(f"Training on several devices needs TensorFlow or JAX. The backend is {backend}.")
    if backend == "tensorflow":
        if model_parallel != 1 or sequence_parallel != 1 or fully_sharded:
            raise DistributionError(
                "Weights and rows are split over devices on JAX only: set KERAS_BACKEND=jax, or omit model_parallel, "
                "sequence_parallel and fully_sharded."
            )
        return _on_tensorflow(build, compile_model, devices)
    devices = list(devices or keras.distribution.list_devices())
    group = model_parallel * sequence_parallel
    if min(model_parallel, sequence_parallel) < 1 or len(devices) % group:
        raise DistributionError(f"{len(devices)} devices do not divide into groups of {group}.")
    shape = (len(devices) // group, sequence_parallel, model_parallel)
    distribution = _distribution(build, shape, fully_sharded, devices)
    keras.distribution.set_distribution(distribution)
    model = _compiled(build, compile_model)
    if fully_sharded:
        gather_in_steps(model)
    if sequence_parallel > 1:
        split_rows_in_steps(model, distribution.device_mesh)
    return model


def _on_tensorflow(build, compile_model, devices):
    with _strategy(devices).scope():
        model = _compiled(build, compile_model)
    if getattr(model, "optimizer", None) is not None:
        update_as_one_device(model)
    _build_from_one_replica(model)
    if cluster_size() > 1:
        model.train_step = _with_leading_axis(model.train_step)
        model.test_step = _with_leading_axis(model.test_step)
    return model


def _compiled(build, compile_model):
    model = build()
    if compile_model is not None:
        compile_model(model)
    return model


def _strategy(devices):
    import tensorflow as tf

    if cluster_size() > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if devices is None:
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        devices = [device.name for device in devices]
    return tf.distribute.MirroredStrategy(devices)


def _build_from_one_replica(model):
    """Makes Keras build metrics and optimizer from the batch of one replica.

    Keras takes the mean of the replicas' batches, for their shapes only, which fails for booleans, such as masks.
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


def _with_leading_axis(step):
    """Adds a first axis of size one to the results of a step, over which Keras takes the mean of the workers."""

    def with_leading_axis(data):
        return keras.tree.map_structure(lambda x: keras.ops.expand_dims(x, 0), step(data))

    return with_leading_axis


def _distribution(build, shape, fully_sharded, devices):
    from keras_transformer.backend.devices.unallocated import unallocated
    from keras_transformer.models.transforms.layout_map import layout_map

    if len(devices) == shape[0] and not fully_sharded:
        return keras.distribution.DataParallel(devices=devices)
    axes = ("batch", "sequence", "model")
    if shape[1] == 1:
        shape, axes = shape[::2], axes[::2]
    mesh = keras.distribution.DeviceMesh(shape, axes, devices)
    before = random.getstate()  # Initializers draw seeds from it: the extra build must not change the initial weights.
    try:
        with unallocated():
            layouts = layout_map(build(), mesh, data_axis="batch" if fully_sharded else None)
    finally:
        random.setstate(before)
    return keras.distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
