"""Quantized copies of a proven float bundle: its files are quantized, compared with it, verified again and evaluated."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import shutil
import tempfile
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from keras_transformer.export.bundle import writing
from keras_transformer.export.bundle.manifest import timestamp, write_manifest
from keras_transformer.export.bundle.probe_files import write_probes
from keras_transformer.export.bundle.tokenizers import read_tokenizer
from keras_transformer.export.data.export_spec import ExportSpec, Probe
from keras_transformer.export.data.manifest import FILE as MANIFEST
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.manifest_records import WeightsRecord
from keras_transformer.export.data.report import Artifact
from keras_transformer.export.formats import get_format
from keras_transformer.export.loading.load import available_cores, open_artifact
from keras_transformer.export.quantization.calibrated import FullInt8, batches_of
from keras_transformer.export.quantization.calibration_data import Batch, Calibration, bundle_batches
from keras_transformer.export.quantization.learned_ranges import LearnedRanges
from keras_transformer.export.quantization.options import Quantization
from keras_transformer.export.reporting.html_report import FILE as REPORT
from keras_transformer.export.reporting.html_report import write_report
from keras_transformer.export.reporting.progress import Steps
from keras_transformer.export.runtime.generation_steps import RuntimeSteps
from keras_transformer.export.verification.quantized.evaluation import Evaluation, Measurement
from keras_transformer.export.verification.quantized.float_predictions import FloatPredictions, ModelSteps, token_rows
from keras_transformer.export.verification.quantized.weights import QuantizedWeightRecord
from keras_transformer.export.writing.judgment import Given, judge
from keras_transformer.export.writing.quantized_files import advice_on_weights, open_copy, quantize_files
from keras_transformer.generation import GenerationSpec

if TYPE_CHECKING:
    import keras

# Batches of calibration data that a bundle is verified with.
_MOST_PROBES = 16
# What the manifest says of float files that were not run; see `request.LARGEST_RUN`.
NOT_RUN = "compared with the model weight by weight, not run"


class QuantizedCopies:
    """Writes quantized copies of a float bundle; what the float files predict is measured once for all of them.

    Args:
        source: path of the float bundle, complete or still being written. It is not changed.
        manifest: its manifest.
        spec: the `ExportSpec`, with `evaluation`.
        artifacts: dict of format name to `Artifact`: the float files to quantize.
        steps: `Steps`: each format of a copy is one of them.
    """

    def __init__(
        self,
        source: pathlib.Path,
        manifest: Manifest,
        spec: ExportSpec,
        artifacts: Mapping[str, Artifact],
        steps: Steps,
    ) -> None:
        self._source, self._manifest, self._spec = source, manifest, spec
        self._artifacts, self._steps = artifacts, steps
        self._measured: dict[str, Measurement] = {}
        self._predictions: FloatPredictions | None = None
        self._calibrations: list[tuple[Calibration, list[Batch]]] = []
        self._learned: tuple[int, int, LearnedRanges] | None = None

    def write(self, quantization: Quantization, folder: pathlib.Path, title: str) -> dict[str, Artifact]:
        """Fills a folder with a bundle of one precision.

        Args:
            quantization: `Quantization`.
            folder: path of an empty folder.
            title: name of the bundle, for its `report.html`.

        Returns:
            Dict of format name to `Artifact`, whose paths are relative to the folder.

        Raises:
            WeightError: a weight is further from the float one than half a step of its scale.
            QuantizationError: the mode is not supported, the task loses more than the evaluation allows, or a model behaves
                differently.
            ParityError: a change beyond the tolerance of the quantization, or a value that is not finite.
        """
        records = self._manifest.artifacts
        left_out = {path for name in records.keys() - self._artifacts.keys() for path in records[name].paths}
        manifest = dataclasses.replace(
            self._manifest, created=timestamp(), artifacts={name: records[name] for name in self._artifacts}
        )
        is_left_out = shutil.ignore_patterns(MANIFEST, REPORT, *left_out)
        shutil.copytree(self._source, folder, ignore=is_left_out, dirs_exist_ok=True)
        spec = dataclasses.replace(self._spec, quantization=quantization)
        artifacts = {}
        for name, artifact in self._artifacts.items():
            self._steps.begin(f"quantizing {name} to {quantization.mode}")
            artifacts[name], manifest = self.quantize(artifact, spec, folder, manifest)
            share = artifacts[name].size / (artifact.size or 1)
            self._steps.note(f"quantized {name} to {quantization.mode}: {share:.2f} of the size")
        if self._predictions is not None:
            self._predictions.write(folder)
        write_report(folder, manifest, title)
        write_manifest(folder, manifest)
        return artifacts

    def quantize(
        self, artifact: Artifact, spec: ExportSpec, folder: pathlib.Path, manifest: Manifest
    ) -> tuple[Artifact, Manifest]:
        """Quantizes the files of one format in a copy, and judges them; returns its `Artifact`, and the new manifest."""
        name, start = artifact.format, time.perf_counter()
        before = self._float_measurement(name) if _has_data(spec.evaluation) else None
        spec = self._calibrated(spec)
        advice = functools.partial(advice_on_weights, self._source, self._manifest, spec, name)
        probes, further = self._probes(name, spec), self._further_probes(name, spec)
        given = Given(probes, further, self._float_predictions(name), before, advice)
        others_size = writing.bytes_in(folder) - artifact.size
        quantize_files(name, spec, folder, manifest)
        size = writing.bytes_in(folder) - others_size
        if isinstance(spec.quantization, FullInt8):
            write_probes(folder, given.probes)  # The bundle is verified again on data within the ranges.
        found = judge(name, spec, self._source, folder, manifest, given)
        shared: dict[str, Any] = {"size": size, "float_size": artifact.size, **found.shared()}
        record = dataclasses.replace(
            manifest.artifact(name),
            weights=None if found.weights is None else _record(found.weights),
            milliseconds=found.milliseconds,
            parity=tuple(found.parity),
            quantization=spec.quantization.mode,
            tolerance=found.limit,
            float_files=None if spec.runs_floats else NOT_RUN,
            **shared,
        )
        quantized = dataclasses.replace(
            artifact,
            rounded=None if found.weights is None else found.weights["rounded"],
            parity=found.parity,
            probes=sum(map(len, (*given.probes.values(), *given.further.values()))),
            seconds=artifact.seconds + time.perf_counter() - start,
            **shared,
        )
        return quantized, manifest.with_artifact(name, record)

    def _probes(self, name: str, spec: ExportSpec) -> dict[str, list[Probe]]:
        """The probes of the signatures of a format; calibration data, where other numbers are outside the ranges."""
        if not isinstance(spec.quantization, FullInt8):
            return {key: each for key, each in spec.probes().items() if key in spec.names(name)}
        batches = batches_of(spec.quantization)[:_MOST_PROBES]
        key = next(iter(self._manifest.artifact(name).signatures))
        model, learned = open_artifact(self._source, self._manifest, name, key), spec.quantization.learned
        outputs = [dict(model(each)) for each in batches]
        if learned is not None:
            outputs = [learned.expected(n, each) for n, each in enumerate(outputs)]
        pairs = enumerate(zip(batches, outputs, strict=True))
        return {key: [Probe(batch, f"calibration data {n}", each) for n, (batch, each) in pairs]}

    def _further_probes(self, name: str, spec: ExportSpec) -> dict[str, list[Probe]]:
        """Other batches and lengths of usual numbers, on which files run that take any numbers."""
        if isinstance(spec.quantization, FullInt8) or not spec.runs_floats:
            return {}
        usual, signatures = spec.usual().probes(further=True), spec.signatures
        return {key: usual[key][len(signatures[key].probes) :] for key in spec.names(name) if key in usual}

    def _calibrated(self, spec: ExportSpec) -> ExportSpec:
        """The spec with its calibration data as batches. Data that can be read once serve all formats and precisions."""
        data = getattr(spec.quantization, "calibration", None)
        if data is None:
            return spec
        known = next((batches for each, batches in self._calibrations if each is data), None)
        if known is None:
            known = bundle_batches(data, self._manifest)
            self._calibrations.append((data, known))
        changes: dict[str, object] = {"calibration": known}
        if getattr(spec.quantization, "trained", None) is not None:
            changes["trained"] = self._learned_ranges(spec.quantization.trained, known)
        return dataclasses.replace(spec, quantization=dataclasses.replace(spec.quantization, **changes))

    def _learned_ranges(self, model: keras.Model, batches: list[Batch]) -> LearnedRanges:
        """The ranges that a model has learned, measured once for all formats."""
        from keras_transformer.export.spec.trained_integers import measured_ranges

        if self._learned is None or self._learned[:2] != (id(model), id(batches)):
            self._steps.note(f"observing {model.name!r} on the calibration data")
            self._learned = id(model), id(batches), measured_ranges(model, batches)
        return self._learned[2]

    def _float_measurement(self, name: str) -> Measurement:
        """What the evaluation measures of the float files of one format."""
        if name not in self._measured:
            self._measured[name] = self._spec.evaluation.measure(
                open_copy(self._source, self._manifest, self._spec, name)
            )
        return self._measured[name]

    def _float_predictions(self, name: str) -> FloatPredictions | None:
        """What the float model predicts, measured once for all formats; None for what is no language model."""
        spec = self._spec
        if not spec.generation or not {"prefill", "decode"} <= set(spec.names(name)):
            return None
        if self._predictions is None:
            text = spec.evaluation.text if spec.evaluation else ()
            described = GenerationSpec.from_dict(spec.generation)
            tokens = token_rows(text, read_tokenizer(self._source, self._manifest), described) if len(text) else None
            probes = {key: spec.signatures[key].probes for key in spec.names(name)}
            self._steps.note(f"predicting with the {'float files' if spec.runs_floats else 'model'}")
            self._predictions = FloatPredictions.measure(self._float_steps(name), probes, tokens)
        return self._predictions

    def _float_steps(self, name: str) -> RuntimeSteps:
        """The steps of the float files of one format, or of the model where those are not run."""
        if self._spec.runs_floats:
            return get_format(name).open_steps(self._source, self._manifest, available_cores())
        return ModelSteps(self._spec, self._manifest)


def quantize_in_place(
    artifact: Artifact, spec: ExportSpec, folder: pathlib.Path, manifest: Manifest
) -> tuple[Artifact, Manifest]:
    """Replaces the float files of one format by quantized ones, held to the same limits.

    Args:
        artifact: `Artifact` of the float files.
        spec: the `ExportSpec`, with `quantization` and `evaluation`.
        folder: path of the bundle that is being written.
        manifest: its manifest.

    Returns:
        `Artifact` of the quantized files, and the manifest with their record.

    Raises:
        WeightError, QuantizationError, ParityError: see `QuantizedCopies.write`.
    """
    with tempfile.TemporaryDirectory() as name:
        source = pathlib.Path(name, "floats")
        shutil.copytree(folder, source)
        copies = QuantizedCopies(source, manifest, spec, {artifact.format: artifact}, Steps(0, False))
        return copies.quantize(artifact, spec, folder, manifest)


def _record(weights: QuantizedWeightRecord) -> WeightsRecord:
    """What the manifest says of the weights."""
    return WeightsRecord(weights["equal"], (), tuple(weights["unaccounted"]), weights["rounded"])


def _has_data(evaluation: Evaluation | None) -> TypeGuard[Evaluation]:
    """Whether an evaluation measures more than text."""
    return evaluation is not None and (len(evaluation.inputs) > 0 or evaluation.score is not None)
