"""Sensitivity of a task to the quantization of single weights: each is kept in float once, all others are quantized."""

import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from typing import NamedTuple

from keras_transformer.export.bundle.manifest import read_manifest, write_manifest
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.limits import SMALL
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import InvalidBundleError, QuantizationError
from keras_transformer.export.formats import files_of
from keras_transformer.export.loading.load import load
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.onnx.quantization import full_integers
from keras_transformer.export.onnx.quantization.graph_quantizer import is_candidate
from keras_transformer.export.onnx.quantization.quantize import quantize_files
from keras_transformer.export.onnx.weights.files import read
from keras_transformer.export.onnx.weights.lazy_tensors import constant_of
from keras_transformer.export.quantization.calibrated import batches_of
from keras_transformer.export.quantization.calibration_data import bundle_batches
from keras_transformer.export.quantization.options import MODES, FullInt8, Int8Static, Quantization, literal, matches
from keras_transformer.export.quantization.precisions import Mode, precision_of
from keras_transformer.export.verification.quantized.evaluation import Evaluation, Measurement, check_loss
from keras_transformer.utils.types import Path

# Label of the first entry, which has no weight.
ALL = "all quantized"


class Sensitivity(NamedTuple):
    """The effect of keeping one weight in float.

    Args:
        weight: path of the weight; "" for all of them quantized.
        agreement: share of the predictions that stay as in float, or None.
        score: the evaluation's score, or None.
        score_float: the score of the float files, or None.
        size: bytes of the ONNX files so quantized.
    """

    weight: str
    agreement: float | None
    score: float | None
    score_float: float | None
    size: int


def sensitivity(
    bundle: Path,
    quantize: Mode,
    evaluation: Evaluation,
    progress: Callable[[str], object] | None = None,
) -> list[Sensitivity]:
    """Quantizes the ONNX files of a float bundle repeatedly, with another weight kept in float each time.

    Args:
        bundle: path of a float bundle with ONNX files. It is not changed.
        quantize: name of a mode, or a `Quantization`.
        evaluation: `Evaluation`; its bounds are not applied.
        progress: called with a line of text for each weight, or None.

    Returns:
        list of `Sensitivity`: all quantized first, then the weights, the most sensitive first.

    Raises:
        InvalidBundleError: no ONNX files, or quantized ones.
        QuantizationError: see `export`; `evaluation` is not an `Evaluation`, or has inputs for a
            language model, which needs a score.

    Example:

    >>> import keras, numpy as np
    >>> from keras_transformer.export import Evaluation, export, sensitivity
    >>> layers = [keras.Input((64,)), keras.layers.Dense(64, name="wide"), keras.layers.Dense(2)]
    >>> model = keras.Sequential(layers, name="small")
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["onnx"])
    >>> data = Evaluation([np.random.default_rng(0).normal(size=(8, 64)).astype("float32")])
    >>> [each.weight for each in sensitivity("/tmp/keras_transformer_doctest", "int8", data)]
    ['', 'small/wide/kernel']
    """
    if not isinstance(evaluation, Evaluation):
        raise QuantizationError(f"evaluation must be an Evaluation. Received: {type(evaluation).__name__}")
    manifest = read_manifest(bundle)
    record = manifest.artifacts.get(ONNX.name)
    if record is None or record.quantization is not None:
        raise InvalidBundleError(f"'{bundle}' contains no float ONNX files to quantize")
    if manifest.generation is not None and len(evaluation.inputs):
        raise QuantizationError("a language model is measured by a score of what it generates, not by inputs")
    quantization = _precision(quantize, manifest)
    evaluation = dataclasses.replace(evaluation, min_agreement=None, max_loss=None)
    before = evaluation.measure(load(bundle, ONNX.name))
    files = dict(record.signatures)
    graphs = [read(pathlib.Path(bundle, path)).graph for path in files.values()]
    arrays = {name: constant_of(value) for graph in graphs for name, value in graph.initializers.items()}
    kept = matches(arrays, quantization.keep_float)
    least = 1 if isinstance(quantization, FullInt8) else SMALL
    weights = [name for name, array in arrays.items() if is_candidate(array, least) and name not in kept]
    found = []
    for weight in ["", *weights]:
        keep_float = (*quantization.keep_float, *([literal(weight)] if weight else []))
        changed = dataclasses.replace(quantization, keep_float=keep_float)
        after, size = _measured(pathlib.Path(bundle), files, changed, evaluation)
        found.append(Sensitivity(weight=weight, size=size, **check_loss(evaluation, ONNX.name, before, after)))
        if progress is not None:
            progress(f"{weight or ALL}: agreement {found[-1].agreement}, score {found[-1].score}")
    worth = lambda each: (-(each.score or 0.0), -(each.agreement or 0.0))  # noqa: E731
    return [found[0], *sorted(found[1:], key=worth)]


def _precision(quantize: Mode, manifest: Manifest) -> Quantization:
    """The precision of a mode, with its calibration data as batches."""
    quantization = precision_of(quantize)
    if quantization is None:
        raise QuantizationError(
            f"quantize must be one of {', '.join(MODES)}, or a Quantization. Received: {quantize!r}"
        )
    if not isinstance(quantization, (Int8Static, FullInt8)):
        return quantization
    return dataclasses.replace(quantization, calibration=bundle_batches(quantization.calibration, manifest))


def _measured(
    bundle: pathlib.Path, files: dict[str, str], quantization: Quantization, evaluation: Evaluation
) -> tuple[Measurement, int]:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name, "bundle")
        shutil.copytree(bundle, folder)
        manifest = read_manifest(folder)
        if isinstance(quantization, FullInt8):
            full_integers.quantize(ExportSpec({}, quantization=quantization), folder, files)
        else:
            quantize_files(folder, files, quantization, ranges=_ranges(folder, files, quantization))
        manifest = write_manifest(folder, manifest)
        size = sum(manifest.files[name].size for name in files_of(manifest, ONNX.name))
        return evaluation.measure(load(folder, ONNX.name, check=False)), size


def _ranges(
    folder: pathlib.Path, files: dict[str, str], quantization: Quantization
) -> dict[str, tuple[float, float]] | None:
    if not isinstance(quantization, Int8Static):
        return None
    from keras_transformer.export.onnx.quantization.calibrate import ranges_of

    return ranges_of(folder, files, batches_of(quantization), quantization.ranges)
