"""Writes small models, plants faults in the files and compares their weights: `weights_worker.py DIRECTORY`.

A fault is planted by writing the file while a variable has other values, or by editing the file; then the file is compared
with the variables of the model as it was.
"""

import json
import pathlib
import sys

import keras
import numpy as np
from worker_cases import is_exhaustive

from keras_transformer import models, tasks
from keras_transformer.export import ExportOptions
from keras_transformer.export.api import export_twin, model_spec
from keras_transformer.export.errors import WeightError
from keras_transformer.export.formats import DEFAULT_FORMATS, FORMATS
from keras_transformer.export.graph.traced import TracedModule
from keras_transformer.export.request import Request
from keras_transformer.export.verification.weights.check import check_weights

SIZE = models.Size(num_layers=2, hidden_dim=16, num_heads=4, intermediate_dim=32)


def encoder():
    return models.Encoder(SIZE, vocabulary_size=50, max_sequence_length=64)


def decoder():
    backbone = models.Decoder(SIZE, 50, position="rotary", norm="rms_norm", feedforward="gated", activation="silu")
    return tasks.LanguageModel(backbone, tie_embeddings=True)


def rescaled():
    """Converters multiply the kernel by the product of both factors, in two roundings."""
    x = keras.Input((8, 8, 3), name="x")
    y = keras.layers.Rescaling(1 / 0.3)(keras.layers.Rescaling(1 / 255)(x))
    return keras.Model(x, keras.layers.Conv2D(4, 2, strides=2)(y))


def recurrent():
    x = keras.Input((6, 8), name="x")
    return keras.Model(
        x, keras.layers.GRU(12, unroll=True)(keras.layers.LSTM(16, return_sequences=True, unroll=True)(x))
    )


CLEAN = {
    "encoder": encoder,
    "decoder": decoder,
    "batch_norm": lambda: models.Encoder(SIZE, 50, position="sinusoidal", residual="post", norm="batch_norm"),
    "vit": lambda: tasks.ImageClassifier(models.ViT(SIZE, patch_size=4, image_size=8), num_classes=5),
    "dinov2": lambda: models.DINOv2(SIZE, patch_size=4, image_size=8, gated=True),
    "t5": lambda: tasks.LanguageModel(models.T5(SIZE, 50)),
    "mixtral": lambda: tasks.LanguageModel(models.Mixtral(SIZE, 50)),
    "retnet": lambda: models.RetNet(SIZE, 50, chunk_size=4),
    "recurrent": recurrent,
    "rescaled": rescaled,
    "fresh": encoder,
}
# Exhaustive tests ask for these.
EXHAUSTIVE = ("recurrent", "rescaled", "vit", "dinov2", "mixtral", "retnet")
TABLE, POSITIONS = "token_embedding/embeddings", "position_embedding/"
QUERY, KEY = "encoder_block_0/self_attention/query/kernel", "encoder_block_0/self_attention/key/kernel"


def negated(values):
    values[TABLE][17, 3] *= -1


def scaled(values):
    values[KEY] *= np.float32(1.001)


def heads_swapped(values):
    kernel = values[KEY].reshape(16, 4, 4)
    kernel[:, [0, 1]] = kernel[:, [1, 0]]


def exchanged(values):
    other = KEY.replace("block_0", "block_1")
    values[KEY], values[other] = values[other].copy(), values[KEY].copy()


def positions_cut(values):
    name = next(name for name in values if name.startswith(POSITIONS))
    values[name][20:] = 0


def one_step(values):
    bias = values["encoder_block_1/feedforward/hidden/bias"]
    bias[5] = np.nextafter(bias[5], np.float32(9))


def query_scaled(values):
    values[QUERY] *= np.float32(1.001)


FAULTS = {
    each.__name__: each for each in (negated, scaled, heads_swapped, exchanged, positions_cut, one_step, query_scaled)
}


def _spec(model, options):
    return model_spec(model, Request(pathlib.Path(), list(DEFAULT_FORMATS), [None], options=options))


def prepared(make, is_fresh=False):
    keras.utils.set_random_seed(0)
    model, rng = make(), np.random.default_rng(0)
    for variable in model.variables:
        if "float" in str(variable.dtype) and not is_fresh:
            value = rng.normal(scale=0.2, size=variable.shape)
            variable.assign(np.abs(value) + 0.5 if "variance" in variable.path else value)
    model = export_twin(model)
    try:
        spec = _spec(model, ExportOptions(tolerance=1e-5))
    except Exception:  # A model that reads sequences of a fixed length only has no generation.
        spec = _spec(model, ExportOptions(tolerance=1e-5, generation=False))
    return spec, TracedModule(spec)


def outcome(name, traced, spec, folder, files):
    try:
        return check_weights(name, traced, spec, folder, files)
    except WeightError as error:
        return {"error": error.weight, "index": error.index, "message": str(error)}


def written(spec, traced, folder):
    """Writes all formats; returns a dict of format to files."""
    folder.mkdir(parents=True)
    return {name: FORMATS[name].write(traced, spec, folder) for name in DEFAULT_FORMATS}


def clean(directory):
    results = {}
    for name, make in CLEAN.items():
        if name in EXHAUSTIVE and not is_exhaustive():
            continue
        spec, traced = prepared(make, is_fresh=name == "fresh")
        files = written(spec, traced, directory / name)
        results[name] = {each: outcome(each, traced, spec, directory / name, files[each]) for each in files}
        results[name]["read"] = len(traced.exported_variables)
    return results


def faults(directory):
    spec, traced = prepared(encoder)
    original = {each.path: np.array(each) for each in spec.variables}
    results = {}
    for name, plant in FAULTS.items():
        values = {path: array.copy() for path, array in original.items()}
        plant(values)
        for variable in spec.variables:
            variable.assign(values[variable.path])
        files = written(spec, traced, directory / name)
        for variable in spec.variables:
            variable.assign(original[variable.path])
        results[name] = {each: outcome(each, traced, spec, directory / name, files[each]) for each in files}
        results[name]["changed"] = [path for path in original if not np.array_equal(original[path], values[path])]
    return results


def main(directory):
    results = {"faults": faults(directory / "faults"), "clean": clean(directory / "clean")}
    (directory / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
