"""Accumulates gradients on two devices of `tf.distribute`, also in a training that ends between two updates; prints weights.

Each training is forked from a process that has imported Keras and done nothing with it: importing is most of the time.
"""

import json
import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np

from keras_transformer import data, models, tasks, training

ROWS, LENGTH, STEPS = 4, 6, 6  # Six batches of four rows, two for each update.


def batches(rows, steps):
    token_ids = np.random.default_rng(0).integers(1, 20, (ROWS * STEPS, LENGTH + 1)).astype("int32")

    def make(epoch, step):
        chosen = token_ids[step * rows : (step + 1) * rows]
        inputs = {"token_ids": chosen[:, :-1], "padding_mask": np.ones((rows, LENGTH), bool)}
        return inputs, chosen[:, 1:]

    return data.BatchStream(make, steps, fixed_shapes=True)


def build():
    keras.utils.set_random_seed(0)
    return tasks.LanguageModel(models.Decoder(models.Size(1, 16, 2, 32), vocabulary_size=20))


def compiled_with(loss_scaling=False, **options):
    def compile_model(model):
        # The norm of the gradients is about 0.3: they are clipped.
        optimizer = keras.optimizers.SGD(0.5, momentum=0.9, weight_decay=0.01, global_clipnorm=0.1, **options)
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer) if loss_scaling else optimizer
        model.compile(optimizer, training.MaskedCrossentropy())

    return compile_model


class Interrupted(Exception):
    pass


class Interrupt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:  # One batch after the first update.
            raise Interrupted


def whole():
    model = build()
    compiled_with()(model)
    stream = batches(2 * ROWS, STEPS // 2)
    model.fit(stream.repeat(), steps_per_epoch=STEPS // 2, verbose=0)
    return model


def clipped(**options):
    model = on_two_devices(**options)
    stream = batches(2 * ROWS, STEPS // 2)
    model.fit(stream.repeat(), steps_per_epoch=STEPS // 2, verbose=0)
    return model


def accumulated(distribute=True, **options):
    options["gradient_accumulation_steps"] = 2
    model = on_two_devices(**options) if distribute else build()
    if not distribute:
        compiled_with(**options)(model)
    model.fit(batches(ROWS, STEPS).repeat(), steps_per_epoch=STEPS, verbose=0)
    return model


def resumed(folder):
    stream = batches(ROWS, STEPS)
    model = on_two_devices(gradient_accumulation_steps=2)
    for callbacks in ([Interrupt()], []):
        checkpoint = training.TrainingCheckpoint(folder, stream, save_freq=1)
        try:
            model.fit(stream.repeat(), steps_per_epoch=STEPS, callbacks=[checkpoint, *callbacks], verbose=0)
        except Interrupted:
            checkpoint.on_train_end()
            # What the second training must not depend on.
            for variable in (*model.trainable_variables, *model.optimizer.variables):
                variable.assign(keras.ops.zeros_like(variable))
    return model


def on_two_devices(**options):
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return training.distributed(build, compiled_with(**options))


def in_a_fork(name, train, *arguments, **options):
    pid = os.fork()
    if not pid:
        try:
            weights = np.concatenate([np.ravel(weight) for weight in train(*arguments, **options).get_weights()])
            print(json.dumps({"name": name, "weights": weights.astype(float).tolist()}), flush=True)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {str(error)[:500]}", file=sys.stderr, flush=True)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, name


if __name__ == "__main__":
    in_a_fork("whole", whole)
    in_a_fork("clipped", clipped)
    in_a_fork("accumulated", accumulated)
    averages = {"use_ema": True, "ema_momentum": 0.5}
    in_a_fork("averages of one device", accumulated, distribute=False, **averages)
    in_a_fork("averages", accumulated, **averages)
    in_a_fork("clipped, scaled", clipped, loss_scaling=True)
    in_a_fork("accumulated, scaled", accumulated, loss_scaling=True)
    in_a_fork("resumed", resumed, Path(sys.argv[1]))
