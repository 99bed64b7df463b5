"""Which weights cost most when they are quantized: each left in float once, all others quantized."""

import dataclasses
import pathlib
import shutil
import tempfile
from typing import NamedTuple

from keras_transformer.export.bundle.manifest import FILE, file_records, files_of, read_manifest
from keras_transformer.export.bundle.writing import write_manifest
from keras_transformer.export.errors import InvalidBundleError, QuantizationError
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.graphs import load_arrays
from keras_transformer.export.onnx.quantize import is_candidate, quantize_files
from keras_transformer.export.quantization.evaluation import check_loss
from keras_transformer.export.quantization.options import Quantization, matches
from keras_transformer.export.runtime.loading import load

# How the first entry, which has no weight, is shown.
ALL = "all quantized"


class Sensitivity(NamedTuple):
    """What leaving one weight in float gives back.

    Args:
        weight: path of the weight; "" for all of them quantized.
        agreement: share of the top answers that stay as in float, or None.
        score: the evaluation's score, or None.
        score_float: the score of the float files, or None.
        size: bytes of the ONNX files so quantized.
    """

    weight: str
    agreement: float | None
    score: float | None
    score_float: float | None
    size: int


def sensitivity(bundle, quantize, evaluation, progress=None):
    """Quantizes the ONNX files of a float bundle again and again, with one weight left in float each time.

    Args:
        bundle: path of a float bundle with ONNX files. It is not changed.
        quantize: name of a mode, or a `Quantization`.
        evaluation: `Evaluation`; its bounds are not applied.
        progress: called with a line of text for each weight, or None.

    Returns:
        list of `Sensitivity`: all quantized first, then the weights, the one that gives most back first.

    Raises:
        InvalidBundleError: no ONNX files, or quantized ones.
        QuantizationError: see `export`; or inputs for a language model, which is measured by a score.

    Example:

    >>> import keras, numpy as np
    >>> from keras_transformer.export import Evaluation, export, sensitivity
    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, name="wide"), keras.layers.Dense(2)])
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["onnx"])
    >>> data = Evaluation([np.random.default_rng(0).normal(size=(8, 64)).astype("float32")])
    >>> [each.weight for each in sensitivity("/tmp/keras_transformer_doctest", "int8", data)]
    ['', 'sequential/wide/kernel']
    """
    manifest = read_manifest(bundle)
    record = manifest["artifacts"].get(ONNX.name)
    if record is None or "quantization" in record:
        raise InvalidBundleError(f"'{bundle}' holds no float ONNX files to quantize")
    if manifest.get("generation") is not None and len(evaluation.inputs):
        raise QuantizationError("a language model is measured by a score of what it generates, not by inputs")
    quantization = Quantization.of(quantize)
    evaluation = dataclasses.replace(evaluation, min_agreement=None, max_loss=None)
    before = evaluation.measure(load(bundle, ONNX.name))
    files = record["signatures"]
    arrays = {
        name: each for path in files.values() for name, each in load_arrays(pathlib.Path(bundle, path))[1].items()
    }
    kept = matches(arrays, quantization.keep_float)
    weights = [name for name, array in arrays.items() if is_candidate(array) and name not in kept]
    found = []
    for weight in ["", *weights]:
        kept = (*quantization.keep_float, *([_literal(weight)] if weight else []))
        changed = dataclasses.replace(quantization, keep_float=kept)
        after, size = _measured(pathlib.Path(bundle), files, changed, evaluation)
        found.append(Sensitivity(weight=weight, size=size, **check_loss(evaluation, ONNX.name, before, after)))
        if progress is not None:
            progress(f"{weight or ALL}: agreement {found[-1].agreement}, score {found[-1].score}")
    worth = lambda each: (-(each.score or 0.0), -(each.agreement or 0.0))  # noqa: E731
    return [found[0], *sorted(found[1:], key=worth)]


def _measured(bundle, files, quantization, evaluation):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder, "bundle")
        shutil.copytree(bundle, folder)
        manifest = read_manifest(folder)
        (folder / FILE).unlink()  # Written anew, last: it does not list itself.
        quantize_files(folder, files, quantization, ranges=_ranges(folder, files, quantization))
        manifest["files"] = file_records(folder)
        write_manifest(folder, manifest)
        size = sum(manifest["files"][name]["bytes"] for name in files_of(manifest, ONNX.name))
        return evaluation.measure(load(folder, ONNX.name, check=False)), size


def _ranges(folder, files, quantization):
    if quantization.mode != "int8_static":
        return None
    from keras_transformer.export.onnx.calibrate import ranges_of

    return ranges_of(folder, files, quantization.calibration)


def _literal(name):
    """A pattern that matches this name alone."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
