"""Compresses a small model for a loss, and prints the result as JSON: the folder of the bundle, and the loss."""

import json
import sys

import keras
import numpy as np

from keras_transformer.export import Candidate, Evaluation, compress


def network():
    keras.utils.set_random_seed(2)
    layers = [keras.layers.Dense(96, "relu"), keras.layers.Dense(96, "relu"), keras.layers.Dense(32)]
    return keras.Sequential([keras.Input((64,), name="x"), *layers])


def main():
    folder, loss = sys.argv[1], float(sys.argv[2])
    model = network()
    x = np.random.default_rng(0).normal(size=(200, 64)).astype("float32")
    expected = np.asarray(model(x))

    def score(files):
        return -float(np.abs(next(iter(files(x=x).values())) - expected).mean())

    options = {"formats": "onnx", "progress": False, "candidates": {"mixed": Candidate(schemes="budget")}}
    found = compress(model, folder, None, x[:64], Evaluation([x], score=score), max_loss=loss, **options)
    print(json.dumps(found.to_dict()))


if __name__ == "__main__":
    main()
