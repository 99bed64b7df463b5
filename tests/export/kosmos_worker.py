"""Exports a model of text and images: `kosmos_worker.py OUT_DIRECTORY`. Writes `kosmos.keras` and the bundle `kosmos`."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_transformer.export import ExportOptions, GenerationOptions, export
from keras_transformer.models import Kosmos, Size, ViT
from keras_transformer.tasks import LanguageModel

BEGIN, NUM_IMAGE_TOKENS, VOCABULARY = 9, 3, 40


def make_model():
    vision = ViT(Size(1, 8, 2, 16), patch_size=4, image_size=8)
    backbone = Kosmos(Size(1, 16, 2, 24), VOCABULARY, vision, begin_image_id=BEGIN, num_image_tokens=NUM_IMAGE_TOKENS)
    random = np.random.default_rng(0)
    for weight in backbone.weights:
        weight.assign(weight + random.normal(0, 0.6, weight.shape))
    return LanguageModel(backbone, end_id=VOCABULARY - 1)


def main(out):
    keras.utils.set_random_seed(0)
    model = make_model()
    model.save(out / "kosmos.keras")
    print(export(model, out / "kosmos", options=ExportOptions(generation=GenerationOptions(static_length=24))))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
