"""Exports small models with the integers that were chosen for their weights: `learned_worker.py OUT_DIRECTORY`."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from worker_cases import run_cases

from keras_transformer import models, tasks, training
from keras_transformer.export import ExportOptions, GenerationOptions, Learned, QuantizationError, export, quantize
from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.quantization import QuantizedWeights, WeightScheme, quantize_weights

FORMATS = ["onnx", "tflite", "saved_model"]
SIZE = models.Size(num_layers=1, hidden_dim=64, num_heads=4, intermediate_dim=128)
EXHAUSTIVE = ("encoder",)
ROWS, BYTES = WeightScheme(4, None), WeightScheme(8, None)
DECODER = {
    "*/query/*": WeightScheme(4, 32),
    "*/key/*": WeightScheme(4, 64, has_minimum=True),
    "*/value/*": WeightScheme(2, 32),
    "*/attention_output/*": ROWS,
    "*/hidden/*": WeightScheme(8, 32),
    "*/output/*": BYTES,
    "token_embedding/*": BYTES,
}
ENCODER = {
    "*/query/*": WeightScheme(3, 32, has_minimum=True),
    "*/key/*": ROWS,
    "*/value/*": BYTES,
    "*/attention_output/*": WeightScheme(8, 64),
    "*/hidden/*": None,
    "*/output/*": WeightScheme(4, 128),
    "token_embedding/*": ROWS,
}
# Rows of 65, 96 and 50 numbers.
NETWORK = {"*/first/*": ROWS, "*/second/*": WeightScheme(4, 32), "*/third/*": BYTES}


def decoder():
    keras.utils.set_random_seed(0)
    return tasks.LanguageModel(models.Decoder(SIZE, vocabulary_size=96), name="decoder")


def encoder():
    keras.utils.set_random_seed(1)
    backbone = models.Encoder(SIZE, vocabulary_size=96, max_sequence_length=32)
    return tasks.SequenceClassifier(backbone, num_classes=3, name="encoder")


def network():
    keras.utils.set_random_seed(2)
    sizes = {"first": 96, "second": 50, "third": 48}
    layers = [keras.layers.Dense(size, "relu", name=name) for name, size in sizes.items()]
    return keras.Sequential([keras.Input((65,), name="x"), *layers], name="network")


def normalized():
    """Numbers that are no weights are in its graph, and one follows a product."""
    random = np.random.default_rng(3)
    first = keras.layers.Normalization(mean=random.normal(size=64), variance=random.random(64) + 0.5)
    layers = [first, keras.layers.Dense(96), keras.layers.Rescaling(0.3), keras.layers.Dense(48)]
    return keras.Sequential([keras.Input((64,), name="x"), *layers], name="normalized")


def record(out, model, schemes, name, formats=FORMATS, **options):
    quantize_weights(model, schemes).save(out / f"{name}.safetensors")
    export(model, out / name, formats, quantize="learned", progress=False, options=ExportOptions(**options))
    return summary(out / name)


def summary(folder):
    artifacts = read_manifest(folder).artifacts
    keys = ("quantization", "weights", "behavior", "bytes", "float_bytes")
    return {name: {key: each.to_dict().get(key) for key in keys} for name, each in artifacts.items()}


def precisions(out):
    """A list of precisions, a quantized copy of its float bundle, and one whose weights are other ones."""
    model, path = network(), out / "network.safetensors"
    weights = quantize_weights(model, NETWORK)
    weights.save(path)
    model.save(out / "network.keras")
    export(model, out / "network", FORMATS, quantize=["float32", "learned"], progress=False)
    x = np.random.default_rng(0).normal(size=(5, 65)).astype("float32")
    np.savez(out / "network.npz", x=x, y=model.predict(x, verbose=0))
    quantize(out / "network" / "float32", out / "again", Learned(path), progress=False)
    blocks = weights["network/second/kernel"]
    others = {**weights, "network/second/kernel": blocks._replace(codes=blocks.codes[:, ::-1])}
    QuantizedWeights(others).save(out / "others.safetensors")
    try:
        others = Learned(out / "others.safetensors")
        quantize(out / "network" / "float32", out / "refused", others, progress=False)
    except QuantizationError as error:
        return {"refused": str(error), **{name: summary(out / name) for name in ("network/learned", "again")}}
    raise AssertionError("not refused")


def static_ranges(out):
    """A model that was trained with fixed ranges of activations, and what it computes with them."""
    aware = training.quantization_aware(network(), {"*": BYTES}, activations=8, activation_range="static")
    x = np.random.default_rng(0).normal(size=(64, 65)).astype("float32")
    aware.compile(keras.optimizers.Adam(1e-3), "mse", jit_compile=False)
    aware.fit(x, np.zeros((64, 48)), batch_size=16, verbose=0)
    plain = training.learned_model(aware)
    plain.quantized_weights.save(out / "static.safetensors")
    export(plain, out / "static", ["onnx"], quantize="learned", progress=False)
    # Among the numbers are some outside of the ranges.
    np.savez(
        out / "static.npz", x=3 * x, trained=aware.predict(3 * x, verbose=0), float=plain.predict(3 * x, verbose=0)
    )
    return plain.quantized_weights.input_ranges


def main():
    out = pathlib.Path(sys.argv[1])
    steps = GenerationOptions(prefill_buckets=(8,))
    cases = {
        "decoder": lambda: record(out, decoder(), DECODER, "decoder", generation=steps),
        "encoder": lambda: record(out, encoder(), ENCODER, "encoder"),
        "network": lambda: precisions(out),
        "normalized": lambda: record(out, normalized(), ROWS, "normalized"),
        "static": lambda: static_ranges(out),
    }
    run_cases(out, cases, exhaustive=EXHAUSTIVE)


if __name__ == "__main__":
    main()
