"""Exports many small models in one process and records the results: `worker.py OUT_DIRECTORY`.

Converters leak memory and can crash, so the tests never run them in pytest's own process.
"""

import functools
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import keras
import numpy as np
import small_models
import tensorflow as tf
from worker_cases import run_cases
from worker_metadata import METADATA

from keras_transformer import export as export_package
from keras_transformer.export.spec import functional
from keras_transformer.export.spec.probes import fill_references

ALL = ("saved_model", "tflite", "onnx")


def fresh_arrays(model, sizes):
    """Returns inputs of other sizes than the default probes, and the outputs of Keras."""
    spec = functional.functional_spec(model, probes=[sizes])
    probe = spec.signatures["serve"].probes[-1]
    return {f"inputs/{name}": array for name, array in probe.inputs.items()} | {
        f"outputs/{name}": array for name, array in probe.outputs.items()
    }


def good(out, name, sizes=None, probes=None, **options):
    model = getattr(small_models, name)()
    options = export_package.ExportOptions(**options)
    report = export_package.export(model, out / name, probes=probes, options=options)
    if sizes:
        np.savez(out / f"{name}.npz", **fresh_arrays(model, sizes))
    return {"report": report.to_dict(), "text": str(report)}


def described(out):
    """The same model twice, with metadata, and quantized without the model."""
    model = small_models.encoder()
    for name in ("described", "described_again"):
        export_package.export(
            model, out / name, ["tflite", "onnx"], options=export_package.ExportOptions(metadata=METADATA)
        )
    export_package.quantize(out / "described", out / "described_fp16", "fp16")
    return {}


def bad(out, name, format, **options):
    """Exports over an existing bundle; the test asserts that it is kept."""
    target = out / f"bad_{name}_{format}"
    export_package.export(small_models.mlp(), target, ["onnx"])
    before = (target / "manifest.json").read_text()
    result = {"error": None}
    try:
        options = export_package.ExportOptions(**options)
        export_package.export(getattr(small_models, name)(), target, [format], options=options)
    except export_package.ExportError as error:
        state = {key: str(value) for key, value in vars(error).items()}
        result = {"error": type(error).__name__, "message": str(error), **state}
    result["survived"] = (target / "manifest.json").read_text() == before
    result["left"] = sorted(path.name for path in out.iterdir() if path.name.startswith("."))
    result["inside"] = sorted(path.name for path in target.iterdir())
    return result


def mixed(out, policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = small_models.encoder()
    finally:
        keras.config.set_dtype_policy("float32")
    report = export_package.export(model, out / policy)
    return {
        "report": report.to_dict(),
        "policies": sorted({layer.dtype_policy.name for layer in model.layers if layer.weights}),
    }


def two_signatures(out):
    """Prefill and decode with one weight and a cache of the same name as input and output."""
    weight = tf.Variable(np.random.default_rng(0).standard_normal((4, 4)).astype("float32"))

    def prefill(tensors):
        new = tensors["x"] @ weight
        return {"cache": tf.concat([tensors["cache"][:, tf.shape(new)[1] :], new], axis=1), "last": new[:, -1]}

    def decode_step(tensors):
        new = tensors["x"] @ weight
        return {"cache": tf.concat([tensors["cache"][:, 1:], tf.expand_dims(new, 1)], axis=1), "last": new}

    cache = export_package.ArraySpec("cache", "float32", (None, 6, 4), ("batch", None, None))
    many = export_package.ArraySpec("x", "float32", (None, None, 4), ("batch", "length", None))
    one = export_package.ArraySpec("x", "float32", (None, 4), ("batch", None))
    signatures = {}
    for name, function, x in (("prefill", prefill, many), ("decode_step", decode_step, one)):
        random = np.random.default_rng(1)
        probes = []
        for batch, length in ((1, 3), (5, 2)):
            shape = (batch, length, 4) if x is many else (batch, 4)
            arrays = {"cache": random.standard_normal((batch, 6, 4)), "x": random.standard_normal(shape)}
            arrays = {key: array.astype("float32") for key, array in arrays.items()}
            probes.append(export_package.Probe(arrays, f"batch={batch}, length={length}"))
        signatures[name] = export_package.Signature(function, (cache, x), probes)
        fill_references(signatures[name])
    return {
        "report": export_package.export_spec(
            export_package.ExportSpec(signatures), out / "two_signatures", ALL
        ).to_dict()
    }


def wrong_erfc(out):
    """The comparison must detect a wrong function in place of an operation."""
    from keras_transformer.export.operations import table

    export_package.register_lowering("Erfc", "onnx", tf.math.erf)
    try:
        return bad(out, "encoder", "onnx")
    finally:
        del table._REGISTERED["onnx"]["Erfc"]


def slice_probes():
    """Slice starts at the beginning, in the middle, and so late that XLA clamps them."""
    random = np.random.default_rng(2)
    for length, start in ((3, 0), (5, 11), (4, 31)):
        cache, new = random.standard_normal((2, 32, 8)), random.standard_normal((2, length, 8))
        yield {"cache": cache, "new": new, "start": [start]}


CASES = {
    "mlp": lambda out: good(out, "mlp", {"batch": 3}, metadata={"classes": ["a", "b", "c"]}),
    "keras_int8": lambda out: good(out, "keras_int8", {"batch": 3, "length": 6}),
    "described": described,
    "encoder": lambda out: good(out, "encoder", {"batch": 3, "length": 29}),
    "two_lengths": lambda out: good(out, "two_lengths", {"batch": 3, "source_length": 21, "target_length": 8}),
    "cache_scatter": lambda out: good(out, "cache_scatter", {"batch": 3, "length": 2}),
    "cache_slice": lambda out: good(out, "cache_slice", probes=list(slice_probes())),
    "any_image": lambda out: good(out, "any_image", {"batch": 2, "height": 40, "width": 88}),
    "rolled": lambda out: good(out, "rolled", {"batch": 3, "length": 7}),
    "indexing": lambda out: good(out, "indexing", {"batch": 3, "length": 4}),
    "same_tensor": lambda out: good(out, "same_tensor", {"batch": 3}),
    "whole_numbers": lambda out: good(out, "whole_numbers", {"batch": 3, "length": 4}),
    "masked_embedding": lambda out: good(out, "masked_embedding", {"batch": 2, "length": 31}),
    "image_transformer": lambda out: good(out, "image_transformer", {"batch": 3}),
    "only_tflite": lambda out: {
        "report": export_package.export(small_models.mlp(), out / "only", ["tflite"]).to_dict()
    },
    "mixed_bfloat16": lambda out: mixed(out, "mixed_bfloat16"),
    "mixed_float16": lambda out: mixed(out, "mixed_float16"),
    "two_signatures": two_signatures,
    "eigenvalues_tflite": lambda out: bad(out, "with_eigenvalues", "tflite"),
    "functional_eigenvalues_tflite": lambda out: bad(out, "with_functional_eigenvalues", "tflite"),
    "eigenvalues_onnx": lambda out: bad(out, "with_eigenvalues", "onnx"),
    "map_tflite": lambda out: bad(out, "with_map", "tflite"),
    "noise": lambda out: bad(out, "with_noise", "saved_model"),
    "wrong_erfc": wrong_erfc,
    "impossible_tolerance": lambda out: bad(out, "two_lengths", "onnx", tolerance=1e-12),
}


def main(out):
    run_cases(out, {name: functools.partial(case, out) for name, case in CASES.items()})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
