"""Exports a network and a language model in floats and integers: `processor_worker.py FOLDER`; see test_processors.py."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import layers

from keras_transformer import models, tasks
from keras_transformer.export import FullInt8, export

random = np.random.default_rng(0)


def network():
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3), name="x"),
            layers.Conv2D(16, 3, use_bias=False, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.DepthwiseConv2D(3),
            layers.Conv2D(32, 1, activation="relu6"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    for weight in model.weights:
        values = random.normal(size=weight.shape)
        is_positive = weight.name in ("gamma", "moving_variance")
        weight.assign(0.1 + 0.3 * abs(values) if is_positive else 0.3 * values)
    return model


def language_model():
    model = tasks.LanguageModel(models.Decoder(models.Size(2, 64, 4, 128), 500))
    model(np.zeros((1, 8), "int32"))
    for weight in model.weights:
        weight.assign(0.2 * random.normal(size=weight.shape))
    return model


def main(folder):
    folder, images = pathlib.Path(folder), random.normal(size=(64, 32, 32, 3)).astype("float32")
    pictures, words = network(), language_model()
    export(pictures, folder / "network", ["onnx", "tflite"], progress=False)
    export(pictures, folder / "network_full_int8", ["onnx", "tflite"], quantize=FullInt8(images), progress=False)
    export(words, folder / "words_int4", ["onnx", "tflite"], quantize="weight_int4", progress=False)


if __name__ == "__main__":
    main(sys.argv[1])
