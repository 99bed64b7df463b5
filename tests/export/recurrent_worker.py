"""Exports recurrent layers and layers of each step: `recurrent_worker.py OUT CASE ...` records how far files are from Keras.

Batch and length are others than those of the export's own probes.
"""

import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import onnx
from keras import layers

from keras_transformer.export import export, load

RANDOM = np.random.default_rng(5)
FORMATS = ("saved_model", "tflite", "onnx")
TOKENS = np.array([[3, 4, 0, 0, 0, 0, 0], [1, 2, 3, 0, 9, 0, 0], [0, 5, 6, 7, 2, 0, 8]], "int32")


def of_sequences(*parts, width=4, length=None):
    x = keras.Input((length, width), name="x")
    y = x
    for part in parts:
        y = part(y)
    return keras.Model(x, y), {"x": RANDOM.normal(size=(3, 11, width)).astype("float32")}


def both_ways():
    return layers.Bidirectional(layers.LSTM(2, return_sequences=True))


def of_tokens(part):
    x = keras.Input((None,), dtype="int32", name="x")
    return keras.Model(x, part(layers.Embedding(20, 4, mask_zero=True)(x))), {"x": TOKENS}


def with_states():
    x, before = keras.Input((None, 4), name="x"), keras.Input((5,), name="before")
    outputs, after = layers.GRU(5, return_sequences=True, return_state=True)(x, initial_state=before)
    arrays = {"x": RANDOM.normal(size=(3, 6, 4)), "before": RANDOM.normal(size=(3, 5))}
    model = keras.Model([x, before], {"outputs": outputs, "after": after})
    return model, {name: each.astype("float32") for name, each in arrays.items()}


def of_frames():
    x = keras.Input((None, 8, 8, 3), name="x")
    y = layers.TimeDistributed(layers.Conv2D(4, 3, activation="relu"))(x)
    y = layers.TimeDistributed(layers.GlobalAveragePooling2D())(y)
    return keras.Model(x, layers.LSTM(6)(y)), {"x": RANDOM.normal(size=(2, 5, 8, 8, 3)).astype("float32")}


def of_pictures():
    x = keras.Input((None, 6, 6, 2), name="x")
    layer = layers.ConvLSTM2D(3, 3, padding="same", return_sequences=True)
    return keras.Model(x, layer(x)), {"x": RANDOM.normal(size=(2, 4, 6, 6, 2)).astype("float32")}


CASES = {
    "lstm": lambda: of_sequences(layers.LSTM(5)),
    "lstm_twice": lambda: of_sequences(layers.LSTM(5, return_sequences=True), layers.LSTM(3)),
    "lstm_of_long_rows": lambda: of_sequences(layers.LSTM(48, return_sequences=True), width=32),
    "gru_backwards": lambda: of_sequences(layers.GRU(5, go_backwards=True, return_sequences=True)),
    "simple_rnn": lambda: of_sequences(layers.SimpleRNN(5, activation="relu")),
    "bidirectional": lambda: of_sequences(layers.Bidirectional(layers.LSTM(5, return_sequences=True))),
    "cells": lambda: of_sequences(layers.RNN([layers.LSTMCell(5), layers.GRUCell(3)], return_sequences=True)),
    "gru_that_resets_before": lambda: of_sequences(layers.GRU(5, reset_after=False), layers.Dense(2)),
    "unrolled": lambda: of_sequences(layers.LSTM(5, use_bias=False, unroll=True, activation="relu"), length=11),
    "blocks_that_repeat": lambda: of_sequences(*(both_ways() for _ in "abc")),
    "hard_gates": lambda: of_sequences(layers.LSTM(5, recurrent_activation="hard_sigmoid", return_sequences=True)),
    "masked": lambda: of_tokens(layers.LSTM(5)),
    "masked_sequence": lambda: of_tokens(layers.LSTM(5, return_sequences=True)),
    "masked_both_ways": lambda: of_tokens(layers.Bidirectional(layers.GRU(5, return_sequences=True))),
    "states": with_states,
    "pictures": of_pictures,
    "each_step": lambda: of_sequences(layers.TimeDistributed(layers.Dense(3, activation="gelu"))),
    "each_frame": of_frames,
}


def operators_of(path):
    """The recurrent operators and loops of an ONNX file, in the order of their names."""
    graph = onnx.load(path, load_external_data=False).graph
    return sorted(node.op_type for node in graph.node if node.op_type in ("LSTM", "GRU", "RNN", "Loop", "Scan"))


def differences(name):
    """For each format the largest difference from Keras, as a share of the scale, and the operators of an ONNX file."""
    keras.utils.set_random_seed(1)
    model, arrays = CASES[name]()
    for each in model.weights:  # A bias is zero at first.
        each.assign(each + RANDOM.normal(scale=0.1, size=each.shape))
    expected = model(arrays)
    expected = expected if isinstance(expected, dict) else {"": expected}
    with tempfile.TemporaryDirectory() as folder:
        export(model, f"{folder}/bundle", FORMATS, progress=False)
        found = {format: load(f"{folder}/bundle", backend=format)(arrays) for format in FORMATS}
        operators = {"onnx": operators_of(f"{folder}/bundle/model.onnx")}
    return {f"{name}-{format}": (difference(found[format], expected), operators.get(format)) for format in FORMATS}


def difference(found, expected):
    found = found if len(expected) > 1 else {"": next(iter(found.values()))}
    shapes = [(found[key].shape, tuple(each.shape)) for key, each in expected.items()]
    if any(a != b for a, b in shapes):
        raise ValueError(f"shapes {shapes}")
    shares = (float(np.abs(found[key] - each).max() / np.abs(each).max()) for key, each in expected.items())
    return max(shares)


def main(out, *names):
    results = {}
    for name in names:
        try:
            results |= differences(name)
        except Exception as error:  # The test shows it.
            results |= {f"{name}-{format}": f"{type(error).__name__}: {error}" for format in FORMATS}
    pathlib.Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
