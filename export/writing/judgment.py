"""The judgment of quantized files: their weights, their outputs, what they predict, and what an evaluation measures."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from keras_transformer.export.data.export_spec import ExportSpec, Probe
from keras_transformer.export.data.integer_share import IntegerShare
from keras_transformer.export.data.limits import change_limit, limits_of
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import Parity
from keras_transformer.export.verification.quantized.classes import check_classes
from keras_transformer.export.verification.quantized.evaluation import Measurement, check_loss
from keras_transformer.export.verification.quantized.float_predictions import FloatPredictions, checked_behavior
from keras_transformer.export.verification.quantized.integers import integer_share
from keras_transformer.export.verification.quantized.outputs import verify_quantized
from keras_transformer.export.verification.quantized.weights import QuantizedWeightRecord, check_quantized_weights
from keras_transformer.export.writing.quantized_files import open_copy
from keras_transformer.utils.types import JsonObject


class Given(NamedTuple):
    """What quantized files of a format are judged by.

    Attributes:
        probes: dict of signature name to its probes.
        further: those that a bundle keeps none of.
        predictions: of the float model, if it is a language model.
        before: what the evaluation measured of the float files, or None.
        advice: says which weights cost most, for an error.
    """

    probes: dict[str, list[Probe]]
    further: dict[str, list[Probe]]
    predictions: FloatPredictions | None
    before: Measurement | None
    advice: Callable[[], str]


class Judgment(NamedTuple):
    """What was found of quantized files: the fields of an `Artifact`, and of its record in the manifest."""

    weights: QuantizedWeightRecord | None
    integers: IntegerShare | None
    parity: list[Parity]
    milliseconds: dict[str, float]
    limit: float
    behavior: dict[str, float] | None
    evaluation: JsonObject | None

    def shared(self) -> dict[str, Any]:
        """The fields that both have."""
        return {"integers": self.integers, "behavior": self.behavior, "evaluation": self.evaluation}


def judge(
    name: str, spec: ExportSpec, source: pathlib.Path, folder: pathlib.Path, manifest: Manifest, given: Given
) -> Judgment:
    """Compares the quantized files of a format with the float ones: weights, outputs, predictions and evaluation.

    Args:
        name: name of the format.
        spec: the `ExportSpec`, with `quantization` and `evaluation`.
        source: path of the float bundle.
        folder: path of the quantized one.
        manifest: its manifest.
        given: `Given`.

    Raises:
        WeightError, QuantizationError, ParityError: see `QuantizedCopies.write`.
    """
    quantization, mode, predictions = spec.quantization, spec.quantization.mode, given.predictions
    files = dict(manifest.artifact(name).signatures)
    weights = check_quantized_weights(name, source, folder, files, quantization, spec.variables)
    integers = integer_share(name, spec, folder, manifest, given.probes, weights)
    judged = predictions is not None
    limit = change_limit(mode, quantization.tolerance, is_judged_on_text=judged)
    is_lenient = judged and quantization.tolerance == limits_of(mode).change
    times: dict[str, float] = {}
    parity, classes = verify_quantized(
        folder, name, given.probes, limit, manifest, times, further=given.further, is_judged_on_text=is_lenient
    )
    behavior, scores = None, None
    if predictions:
        behavior = checked_behavior(predictions, folder, manifest, name, mode)
    elif classes and not {"prefill", "decode"} <= spec.signatures.keys():
        behavior = dict(classes)
        check_classes(f"{name}, {mode}", classes, limits_of(mode))
    if spec.evaluation and given.before:
        after = spec.evaluation.measure(open_copy(folder, manifest, spec, name))
        scores = dict(check_loss(spec.evaluation, f"{name}, {mode}", given.before, after, given.advice))
    return Judgment(weights, integers, parity, times, limit, behavior, scores)
