"""Compresses a small model and prints the result as JSON: the folder of the bundle, and the loss, or "text"."""

import json
import sys

import keras
import numpy as np

from keras_transformer import models, tasks
from keras_transformer.export import Candidate, Evaluation, compress
from keras_transformer.quantization import WeightScheme, quantize_weights


def network():
    keras.utils.set_random_seed(2)
    layers = [keras.layers.Dense(96, "relu"), keras.layers.Dense(96, "relu"), keras.layers.Dense(32)]
    return keras.Sequential([keras.Input((64,), name="x"), *layers])


def of_text(folder):
    """A language model on tokens; also the same multiple of the perplexity in Keras, with the rounded weights."""
    keras.utils.set_random_seed(5)
    model = tasks.LanguageModel(models.Decoder(models.Size(2, 64, 2, 96), 60, max_sequence_length=48))
    for variable in model.trainable_variables:
        variable.assign(variable + keras.random.normal(variable.shape, stddev=0.15, seed=7))
    rows = np.random.default_rng(0).integers(0, 60, (6, 48)).astype("int32")

    def perplexity():
        # The first quarter of each row is a prompt.
        logits = np.asarray(model(inputs(rows[2:]))).astype("float64")[:, 11:-1]
        own = np.take_along_axis(logits, rows[2:, 12:, None], -1)[..., 0]
        return np.exp((np.log(np.exp(logits).sum(-1)) - own).mean())

    def inputs(rows):
        return {"token_ids": rows, "padding_mask": np.ones(rows.shape, bool)}

    scheme = WeightScheme(4, 32)
    # Other files round activations too.
    options = {"formats": "saved_model", "candidates": {"int4": Candidate(schemes=scheme, method="nearest")}}
    found = compress(
        model, folder, "2 MB", inputs(rows[:2]), Evaluation(text=[rows[2:].reshape(-1)]), progress=False, **options
    )
    before = perplexity()
    quantize_weights(model, scheme)
    return found.to_dict() | {"in_keras": perplexity() / before}


def main():
    if sys.argv[2] == "text":
        print(json.dumps(of_text(sys.argv[1])))
        return
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
