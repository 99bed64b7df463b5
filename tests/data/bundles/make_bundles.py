"""Writes the bundles of this version that every later one must load: `python tests/data/bundles/make_bundles.py [NAME ...]`.

Run it once for a release, on the TensorFlow backend, and keep the folders of earlier versions. `test_stored_bundles.py` of
`tests/export/` loads each of them, and compares its outputs with those in `probes.npz` and in the JSON file beside it.
"""

import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras

from keras_transformer import models, tasks, text
from keras_transformer.export import ExportOptions, export, load
from keras_transformer.version import __version__

FOLDER = pathlib.Path(__file__).parent / ".".join(__version__.split(".")[:2])
# A fixed time and host make two runs write the same manifest.
os.environ.setdefault("SOURCE_DATE_EPOCH", "1790000000")


def write_classifier(folder: pathlib.Path) -> dict[str, object]:
    """A classifier of numbers in three formats; returns what it computes of some."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), name="measurements")
    hidden = keras.layers.Dense(8, activation="relu")(keras.layers.LayerNormalization()(inputs))
    outputs = keras.layers.Dense(3, activation="softmax", name="kinds")(hidden)
    options = ExportOptions(metadata={"class_names": ["a", "b", "c"]})
    export(keras.Model(inputs, outputs), folder, options=options, progress=False)
    measurements = [[0.5, -1.0, 2.0, 0.0], [1.0, 1.5, -0.5, 3.0]]
    return {"measurements": measurements, "kinds": load(folder, "onnx")(measurements)["kinds"].tolist()}


def write_language_model(folder: pathlib.Path) -> dict[str, object]:
    """A language model with its cache in ONNX and TFLite; returns the tokens that it writes."""
    keras.utils.set_random_seed(0)
    tokenizer = text.Bytes()
    size = models.Size(1, hidden_dim=8, num_heads=2, intermediate_dim=8)
    backbone = models.Llama(size, tokenizer.vocabulary_size)
    model = tasks.LanguageModel(backbone, tokenizer=tokenizer)
    export(model, folder, ["onnx", "tflite"], progress=False)
    return {"prompt": "the", "text": load(folder, "onnx").generate("the", max_new_tokens=8)}


WRITERS = {"classifier": write_classifier, "writer": write_language_model}

if __name__ == "__main__":
    for name in sys.argv[1:] or WRITERS:
        outputs = WRITERS[name](FOLDER / name)
        (FOLDER / f"{name}.json").write_text(json.dumps(outputs) + "\n", encoding="utf-8")
