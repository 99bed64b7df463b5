"""Exports models with preprocessing, and records how far bundles are from Keras: `preprocessing_worker.py OUT`.

The inputs are others than those of the export's own probes.
"""

import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from keras_transformer.export import Int8Static, export, load, verify_bundle

COLORS = ["red", "green", "größe"]
WORDS = np.array(["red", "blue", "", "größe", "green"])
TOKENS = ["cat", "the", "on", "größes", "cat cat", "sat"]
TEXTS = np.array(["The cat, SAT on größe's mat!", "", "  cat\tcat  ", "unknown words Ärger"])
SETS = np.array([["red", "", "x"], ["red", "red", "green"]])
NUMBERS = np.array([[10, -7, 5], [2**40, 0, 3]])
FORMATS = "saved_model", "tflite", "onnx"


def of_words(layer, arrays=WORDS, shape=(), dtype="string", after=None):
    x = keras.Input(shape, dtype=dtype, name="x")
    return keras.Model(x, layer(x) if after is None else after(layer(x))), {"x": arrays}


def of_numbers(**options):
    layer = layers.IntegerLookup(vocabulary=[10, -7, 2**40, 3], **options)
    return of_words(layer, NUMBERS, (3,), "int64")


def of_text(after=None, **options):
    return of_words(layers.TextVectorization(vocabulary=TOKENS, **options), TEXTS, after=after)


def pooled(indices):
    return layers.GlobalMaxPooling1D()(layers.Embedding(20, 3)(indices))


def crossed():
    city, age = keras.Input((), dtype="string", name="city"), keras.Input((), dtype="int64", name="age")
    cross = layers.HashedCrossing(20, output_mode="one_hot")([city, age])
    known = layers.StringLookup(vocabulary=COLORS, output_mode="one_hot")(city)
    model = keras.Model({"city": city, "age": age}, layers.Dense(2)(layers.Concatenate()([cross, known])))
    return model, {"city": WORDS, "age": np.arange(5) - 2}


def nested():
    """A model of numbers behind a model that prepares them, as a server has it."""
    name = keras.Input((1,), dtype="string", name="name")
    prepared = keras.Model(name, layers.StringLookup(vocabulary=COLORS, output_mode="multi_hot")(name))
    inputs = keras.Input((1,), dtype="string", name="name"), keras.Input((2,), name="price")
    joined = layers.Concatenate()([layers.Rescaling(1.0)(prepared(inputs[0])), inputs[1]])
    model = keras.Model(dict(zip(("name", "price"), inputs, strict=True)), layers.Dense(2)(joined))
    return model, {"name": WORDS[:, None], "price": np.ones((5, 2), "float32")}


def two_inputs():
    """A text in front of the ONNX file, and a word in it."""
    text, color = (keras.Input((), dtype="string", name=name) for name in ("text", "color"))
    vector = pooled(layers.TextVectorization(vocabulary=TOKENS)(text))
    shade = layers.Embedding(5, 3)(layers.StringLookup(vocabulary=COLORS)(color))
    return keras.Model([text, color], layers.Add()([vector, shade])), {"text": TEXTS, "color": WORDS[:4]}


def feature_space():
    features = keras.utils.FeatureSpace
    space = features(
        {
            "color": features.string_categorical(),
            "size": features.integer_categorical(),
            "age": features.float_discretized(3),
            "price": features.float_normalized(),
            "tag": features.string_hashed(8),
        },
        crosses=[("color", "size"), ("color", "age")],
        crossing_dim=16,
    )
    arrays = {
        "color": np.array(["red", "green", "red", "blue"]),
        "size": np.array([1, 2, 3, 1]),
        "age": np.array([1, 5, 30, 70], "float32"),
        "price": np.array([1, 5, 30, 70], "float32"),
        "tag": np.array(["x", "y", "z", "ö"]),
    }
    space.adapt(tf.data.Dataset.from_tensor_slices(arrays))
    outputs = layers.Dense(3)(space.get_encoded_features())
    return keras.Model(space.get_inputs(), outputs), {name: each[:, None] for name, each in arrays.items()}


CASES = {
    "lookup": lambda: of_words(layers.StringLookup(vocabulary=COLORS), after=layers.Embedding(5, 3)),
    "lookup_of_several_unknown": lambda: of_words(
        layers.StringLookup(vocabulary=COLORS, num_oov_indices=3, mask_token="")
    ),
    "lookup_one_hot": lambda: of_words(layers.StringLookup(vocabulary=COLORS, output_mode="one_hot", mask_token="")),
    "lookup_multi_hot": lambda: of_words(
        layers.StringLookup(vocabulary=COLORS, output_mode="multi_hot", mask_token=""), SETS, (3,)
    ),
    "lookup_count": lambda: of_words(
        layers.StringLookup(vocabulary=COLORS, output_mode="count", max_tokens=7, pad_to_max_tokens=True), SETS, (3,)
    ),
    "lookup_tf_idf": lambda: of_words(
        layers.StringLookup(vocabulary=COLORS, output_mode="tf_idf", idf_weights=[0.5, 0.7, 0.2]), SETS, (3,)
    ),
    "text": lambda: of_text(pooled, output_sequence_length=6),
    "text_of_any_length": lambda: of_text(pooled),
    "text_bigrams": lambda: of_text(layers.Dense(2), ngrams=2, output_mode="multi_hot"),
    "text_tf_idf": lambda: of_text(output_mode="tf_idf", idf_weights=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
    "text_count": lambda: of_text(output_mode="count", pad_to_max_tokens=True, max_tokens=12),
    "characters": lambda: of_text(split="character", standardize="lower", output_sequence_length=9),
    "rows_of_tokens": lambda: of_words(
        layers.TextVectorization(vocabulary=TOKENS, split=None, standardize=None, ngrams=(2,)),
        np.array([["cat", "cat", "x"], ["a", "b", "on"]]),
        (3,),
    ),
    "hashing": lambda: of_words(layers.Hashing(10)),
    "hashing_with_salt": lambda: of_words(
        layers.Hashing(10, salt=[3, 7], mask_value="", output_mode="one_hot"), WORDS[:, None], (1,)
    ),
    "hashing_of_numbers": lambda: of_words(layers.Hashing(10), NUMBERS, (3,), "int64", layers.Embedding(10, 2)),
    "numbers": of_numbers,
    "numbers_of_several_unknown": lambda: of_numbers(mask_token=0, num_oov_indices=3),
    "numbers_multi_hot": lambda: of_numbers(output_mode="multi_hot"),
    "crossed": crossed,
    "nested": nested,
    "two_inputs": two_inputs,
    "feature_space": feature_space,
}


def figures(case, folder):
    model, arrays = CASES[case]()
    report = export(model, folder, progress=False)
    verify_bundle(folder)
    tensors = {name: tf.constant(each) for name, each in arrays.items()}
    expected = np.asarray(model(tensors if isinstance(model.input, dict) else list(tensors.values())))
    found = {}
    for format in FORMATS:
        (output,) = load(folder, format)(arrays).values()
        is_right = output.dtype == expected.dtype and output.shape == expected.shape
        difference = float(np.abs(output.astype("float64") - expected).max()) if is_right else None
        found[format] = {"difference": difference, "preprocessing": report[format].preprocessing}
    return found


def quantized(folder):
    """A text classifier in integers: the figures of the text report, and the answers to one text."""
    model = keras.Sequential(
        [
            keras.Input((), dtype="string", name="text"),
            layers.TextVectorization(vocabulary=TOKENS, output_sequence_length=8),
            layers.Embedding(10, 16),
            layers.GlobalAveragePooling1D(),
            layers.Dense(64, activation="relu"),
            layers.Dense(64),
        ]
    )
    static = Int8Static([{"text": np.array(["the cat sat", "a dog"])}])
    export(model, folder, quantize=["float32", "int8", static], progress=False)
    expected = np.asarray(model(tf.constant(["the cat sat on"])))
    return {
        f"{mode}-{format}": float(np.abs(load(f"{folder}/{mode}", format)("the cat sat on")["output"] - expected).max())
        / float(np.abs(expected).max())
        for mode in ("int8", "int8_static")
        for format in FORMATS
    }


def main(out):
    with tempfile.TemporaryDirectory() as folder:
        keras.utils.set_random_seed(3)
        found = {case: figures(case, f"{folder}/{case}") for case in CASES}
        found["quantized"] = quantized(f"{folder}/quantized")
        found["page"] = pathlib.Path(folder, "two_inputs", "report.html").read_text()
        found["record"] = json.loads(pathlib.Path(folder, "two_inputs", "manifest.json").read_text())
    pathlib.Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
