"""Trains a small language model, and exports it quantized: `behavior_worker.py OUT_DIRECTORY`."""

import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from worker_cases import is_exhaustive

from keras_transformer.export import ExportOptions, GenerationOptions, export
from keras_transformer.models import Decoder, Size
from keras_transformer.tasks import LanguageModel

WORDS, LENGTH = 64, 32


def texts(count, random):
    """Each token follows from the two before it, but for one in ten."""
    tokens = random.integers(0, WORDS, (count, LENGTH + 1))
    for index in range(2, LENGTH + 1):
        rule = (3 * tokens[:, index - 1] + 5 * tokens[:, index - 2] + 7) % WORDS
        tokens[:, index] = np.where(random.random(count) < 0.9, rule, tokens[:, index])
    return tokens.astype("int32")


def main(out):
    keras.utils.set_random_seed(0)
    model = LanguageModel(Decoder(Size(2, 64, 4, 128), WORDS, max_sequence_length=96))
    tokens = texts(6000, np.random.default_rng(0))
    model.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inputs = {"token_ids": tokens[:, :-1], "padding_mask": np.ones((len(tokens), LENGTH), bool)}
    model.fit(inputs, tokens[:, 1:], batch_size=64, epochs=12, verbose=0)
    results = {}
    steps = GenerationOptions(whole_graph=False, prefill_buckets=(16,))
    options = ExportOptions(generation=steps, tolerance=1e-4)
    export(model, out / "float", ["onnx", "tflite"], options=options)
    results["float"] = {}
    for mode in ("int8", "weight_int4") if is_exhaustive() else ():
        report = export(model, out / mode, ["onnx", "tflite"], quantize=mode, options=options)
        print(report)
        results[mode] = {name: each.behavior for name, each in report.artifacts.items()}
    (out / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
