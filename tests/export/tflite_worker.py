"""Exports the models of the test_tflite_*.py files: `tflite_worker.py OUT_DIRECTORY`.

Converters leak memory and can crash, so the tests never run them in pytest's own process.
"""

import json
import os
import pathlib
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from keras_transformer.export import (
    ExportOptions,
    Float16,
    GenerationOptions,
    Int8,
    Int8Static,
    WeightInt4,
    WeightInt8,
    export,
    export_spec,
)
from keras_transformer.export.quantization.precisions import precision_of
from keras_transformer.export.spec.functional import functional_spec
from keras_transformer.export.spec.static_signatures import static_signatures
from keras_transformer.export.tflite.quantization.quantize import quantized
from keras_transformer.models import Decoder, Encoder, Size
from keras_transformer.tasks import LanguageModel

WIDTH, WORDS = 64, 300
STATIC = {"batch": 2, "length": 16}


def _trained_looking(model):
    random = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign_add(random.normal(0.0, 0.1, weight.shape))
    return model


def encoder(out):
    model = _trained_looking(Encoder(Size(2, WIDTH, 4, 2 * WIDTH), WORDS, max_sequence_length=32))
    spec = static_signatures(functional_spec(model), STATIC)
    export_spec(spec, out / "encoder", ["tflite"])
    random = np.random.default_rng(1)
    inputs = {"token_ids": random.integers(0, WORDS, (2, 16), "int32"), "padding_mask": np.arange(16) < [[16], [9]]}
    np.savez(out / "reference.npz", **inputs, output=np.asarray(model(inputs, training=False)))
    content = (out / "encoder" / "model.tflite").read_bytes()
    for quantization in (Float16(), Int8(), Int8Static([inputs]), WeightInt8(), WeightInt4()):
        (out / f"{quantization.mode}.tflite").write_bytes(quantized(content, quantization, spec.variables))
    wide = Int8Static([inputs], activation_bits=16)
    (out / "int8_static_16.tflite").write_bytes(quantized(content, wide, spec.variables))
    patterns = Int8(keep_float=("*block_1/*/query/kernel", "token_embedding/*"))
    (out / "kept.tflite").write_bytes(quantized(content, patterns, spec.variables))
    return {"paths": [each.path for each in model.weights], "signatures": list(spec.signatures)}


def decoder(out):
    keras.utils.set_random_seed(0)  # What it generates must not hang on a near tie.
    model = LanguageModel(Decoder(Size(1, WIDTH, 4, 2 * WIDTH), WORDS, max_sequence_length=16, norm="rms_norm"))
    options = GenerationOptions(prefill_buckets=(4,))
    export(_trained_looking(model), out / "decoder", ["tflite"], options=ExportOptions(generation=options))
    content = (out / "decoder" / "model.tflite").read_bytes()
    for mode in ("int8", "weight_int4"):
        (out / f"decoder_{mode}.tflite").write_bytes(quantized(content, precision_of(mode), model.variables))
    return {}


def images(out):
    inputs = keras.Input((16, 16, 3), name="images")
    x = keras.layers.Conv2D(WIDTH, 4, strides=4)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(WIDTH)(keras.layers.Flatten()(x)))
    export(_trained_looking(model), out / "images", ["tflite"])
    content = (out / "images" / "model.tflite").read_bytes()
    (out / "images_int8.tflite").write_bytes(quantized(content, Int8(), model.variables))
    return {}


def main():
    out = pathlib.Path(sys.argv[1])
    results = {}
    for case in (encoder, decoder, images):
        try:
            results[case.__name__] = case(out)
        except Exception:
            results[case.__name__] = {"crash": traceback.format_exc()}
        (out / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
