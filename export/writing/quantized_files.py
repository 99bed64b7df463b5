"""The files of one format in a quantized copy of a bundle, and which of their weights cost a task most."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import shutil
import tempfile
from typing import Any, NamedTuple

from keras_transformer.export.bundle.preprocessing import read_vocabularies
from keras_transformer.export.bundle.writing import bytes_in
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.formats import get_format
from keras_transformer.export.loading.load import available_cores, open_artifact
from keras_transformer.export.quantization.calibrated import FullInt8
from keras_transformer.export.quantization.options import literal
from keras_transformer.export.runtime.preprocessing import preprocessor
from keras_transformer.export.verification.quantized.evaluation import check_loss

# Weights that are tried in float, the largest first, and those that are named. Larger bundles would take too long.
_TRIED, _NAMED, _LARGEST = 24, 3, 2**26


def quantize_files(name: str, spec: ExportSpec, folder: pathlib.Path, manifest: Manifest) -> None:
    """Replaces the float files of a format by quantized ones: its own, or those made from the quantized files of another.

    Args:
        name: name of the format.
        spec: the `ExportSpec`, with `quantization`.
        folder: path of the copy.
        manifest: its manifest.
    """
    format, spec = get_format(name), _of_files(spec, folder, manifest, name)
    if format.made_from is None:
        format.quantize(spec, folder, dict(manifest.artifact(name).signatures))
    else:
        format.convert(dict(manifest.artifact(format.made_from).signatures), spec, folder)


def _of_files(spec: ExportSpec, folder: pathlib.Path, manifest: Manifest, format: str) -> ExportSpec:
    """The spec of the files of a format; the calibration is of what they take."""
    records = manifest.artifact(format).preprocessing
    if not records:
        return spec.whole() if get_format(format).takes_text else spec
    calibration = getattr(spec.quantization, "calibration", None)
    if calibration is None:
        return spec
    name, preprocessing = next(iter(records.items()))
    preprocess = preprocessor(preprocessing, read_vocabularies(folder, preprocessing.paths))
    prepared = [preprocess(arrays) for arrays in calibration]
    return dataclasses.replace(spec, quantization=dataclasses.replace(spec.quantization, calibration=prepared))


def open_copy(folder: pathlib.Path, manifest: Manifest, spec: ExportSpec, name: str) -> Any:
    """A loaded bundle for an evaluation: a model, or a language model."""
    if spec.generation:
        from keras_transformer.export.loading.language_runtime import open_language_model

        return open_language_model(folder, manifest, name, available_cores())
    return open_artifact(folder, manifest, name, next(iter(spec.signatures)))


class CostlyWeight(NamedTuple):
    """A weight, and what an evaluation measures where it alone stays float.

    Args:
        path: of the Keras variable.
        score: the score, or None.
        agreement: share of the predictions that stay as in float, or None.
    """

    path: str
    score: float | None
    agreement: float | None


def costly_weights(source: pathlib.Path, manifest: Manifest, spec: ExportSpec, name: str) -> list[CostlyWeight]:
    """The weights of a small model that gain most by staying float, where all operators become integers.

    Args:
        source: path of the float bundle.
        manifest: its manifest.
        spec: the `ExportSpec`, with `quantization` and `evaluation`.
        name: name of the format.
    """
    if not isinstance(spec.quantization, FullInt8) or bytes_in(source) > _LARGEST:
        return []
    kernels = sorted((each for each in spec.variables if len(each.shape) > 1), key=lambda each: -math.prod(each.shape))
    evaluation = dataclasses.replace(spec.evaluation, min_agreement=None, max_loss=None)
    before = evaluation.measure(open_copy(source, manifest, spec, name))
    found = []
    for path in [each.path for each in kernels[:_TRIED]]:
        keep_float = (*spec.quantization.keep_float, literal(path))
        tried = dataclasses.replace(spec, quantization=dataclasses.replace(spec.quantization, keep_float=keep_float))
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder, "copy")
            shutil.copytree(source, copy)
            try:
                quantize_files(name, tried, copy, manifest)
            except QuantizationError:  # The weight is not in the file by itself.
                continue
            loss = check_loss(evaluation, name, before, evaluation.measure(open_copy(copy, manifest, spec, name)))
        found.append(CostlyWeight(path, loss["score"], loss["agreement"]))
    return sorted(found, key=lambda each: (-(each.score or 0.0), -(each.agreement or 0.0)))[:_NAMED]


def advice_on_weights(source: pathlib.Path, manifest: Manifest, spec: ExportSpec, name: str) -> str:
    """What an error says of the weights that cost a task most; see `costly_weights`."""
    found = costly_weights(source, manifest, spec, name)
    figures = [each.agreement if each.score is None else each.score for each in found]
    gains = ", ".join(f"{figure:.4g} for '{each.path}'" for each, figure in zip(found, figures, strict=True))
    kind = "the agreement" if spec.evaluation.score is None and spec.evaluation.labels is None else "the score"
    return f". With one weight in keep_float {kind} is {gains}" if found else ""
