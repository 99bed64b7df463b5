"""Checks the data of two devices of `tf.distribute`; prints losses and an error, as JSON."""

import json
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf

from keras_transformer import models, tasks, training

WORDS = 20


def build():
    keras.utils.set_random_seed(0)
    return tasks.LanguageModel(models.Decoder(models.Size(1, 8, 2, 16), vocabulary_size=WORDS))


def compile_model(model):
    model.compile("sgd", training.MaskedCrossentropy())


def fitted(*callbacks, wrong=None):
    token_ids = np.random.default_rng(0).integers(1, WORDS, (8, 6)).astype("int32")
    if wrong is not None:
        token_ids[wrong] = WORDS
    inputs = {"token_ids": token_ids, "padding_mask": token_ids > 0}
    model = training.distributed(build, compile_model)
    try:
        model.fit(inputs, token_ids % WORDS, batch_size=4, shuffle=False, verbose=0, callbacks=list(callbacks))
    except training.DataError as error:
        return str(error)
    return model.history.history["loss"]


if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    print(json.dumps({"plain": fitted(), "checked": fitted(training.CheckData())}))
    # The last row of the second batch is one of the second device.
    print(json.dumps({"refused": fitted(training.CheckData(), wrong=(7, 2))}))
