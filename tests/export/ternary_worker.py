"""Exports a BitNet language model and a single `BitDense`, in a separate process: `ternary_worker.py OUT_DIRECTORY`."""

import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_transformer.export import export
from keras_transformer.feedforward import BitDense, ternary_twin
from keras_transformer.models import Decoder, Size
from keras_transformer.tasks import LanguageModel

WIDTH, WORDS = 96, 60
INPUT = (7, WIDTH)


def language_model():
    backbone = Decoder(Size(2, WIDTH, 4, 2 * WIDTH), WORDS, position="rotary", norm="rms_norm", feedforward="gated")
    return ternary_twin(LanguageModel(backbone))


def layer():
    x = keras.Input((None, WIDTH), name="x")
    return keras.Model(x, {"y": BitDense(64)(x)})


def main(out):
    keras.utils.set_random_seed(0)
    model = layer()
    export(model, out / "layer", ["onnx", "tflite"])
    x = np.random.default_rng(0).normal(size=(2, *INPUT)).astype("float32")
    np.savez(out / "reference.npz", x=x, y=np.asarray(model(x)["y"]))
    model = language_model()
    report = export(model, out / "language").to_dict()
    prompts = [[3, 1, 4], [5, 9, 2, 6, 5]]
    report["tokens"] = [list(map(int, model.generate(prompt, max_new_tokens=6))) for prompt in prompts]
    (out / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
