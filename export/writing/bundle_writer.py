"""Bundles of a spec: written, verified, quantized and published."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from collections.abc import Iterable, Sequence

from keras_transformer.export.bundle import writing
from keras_transformer.export.bundle.manifest import domains_of, read_manifest
from keras_transformer.export.bundle.metadata import check_input_names, check_metadata
from keras_transformer.export.data.domain import domain_lines
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import CEILING, TwinRecord
from keras_transformer.export.data.report import Artifact, Report, Reports
from keras_transformer.export.data.target_result import TargetResult
from keras_transformer.export.formats import DEFAULT_FORMATS, FORMATS, check_formats
from keras_transformer.export.quantization.options import FLOAT, Quantization
from keras_transformer.export.quantization.precisions import Mode, precision_name, precision_of
from keras_transformer.export.reporting.progress import Progress, Steps
from keras_transformer.export.request import Request
from keras_transformer.export.verification.references import check_preprocessing
from keras_transformer.export.writing.data_checks import check_data, with_fitting_batches
from keras_transformer.export.writing.float_files import FloatFiles, complete
from keras_transformer.utils.types import Path


def export_spec(
    spec: ExportSpec,
    directory: Path,
    formats: str | Iterable[str] = DEFAULT_FORMATS,
    *,
    quantize: Mode | None = None,
    progress: Progress = True,
) -> Report:
    """Writes and verifies a bundle of any signatures; `export` does so for the signatures of a Keras model.

    One bundle is written at a time in a process, since converters share state; other threads wait.

    Args:
        spec: an `ExportSpec` whose probes have the reference outputs.
        directory: path of the bundle.
        formats: names of the formats.
        quantize: the name of a mode, or a `Quantization`; None for float files.
        progress: see `export`.

    Returns:
        A `Report`.

    Raises:
        ExportError: any of those that `export` names.

    Example:

    >>> import keras
    >>> from keras_transformer.export.spec.functional import functional_spec
    >>> spec = functional_spec(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))
    >>> list(export_spec(spec, "/tmp/keras_transformer_doctest", ["onnx"]).artifacts)
    ['onnx']
    """
    request = Request(writing.check_target(directory), check_formats(formats), [precision_of(quantize)])
    return next(iter(write_bundles(spec, request, progress).values()))


def write_bundles(spec: ExportSpec, request: Request, progress: Progress = True) -> Reports:
    """Writes, verifies and publishes a bundle of each precision.

    The float files are converted and verified once, and quantized copies are made of them. What was at the directory is
    replaced when all bundles are verified.

    Args:
        spec: as for `export_spec`.
        request: `Request`: the directory, the formats and the precisions.
        progress: see `export`.

    Returns:
        `Reports` by precision.

    Raises:
        ExportError: any of those that `export` names.
    """
    spec, target = with_fitting_batches(spec.only(request.formats)), request.directory
    check_metadata(spec.metadata)
    check_input_names(spec.metadata, (each.name for key in spec.signatures.values() for each in key.inputs))
    check_data(spec, request.precisions)
    check_preprocessing(spec)
    reports = Reports()
    with writing.replacing(target) as work, _steps(spec, request, progress) as steps:
        job = _Job(spec, request.formats, target.name, work, steps)
        artifacts = job.write(request.precisions)
        for each in request.precisions:
            name = precision_name(each)
            proof = job.prove(each)
            folder = target / name if request.has_folders else target
            report = _report(folder, artifacts[name], spec, each, proof)
            reports[name] = dataclasses.replace(report, twin=job.twin)
        if not request.has_folders:
            _lift(work / precision_name(request.precisions[0]))
    return reports


def _steps(spec: ExportSpec, request: Request, progress: Progress) -> Steps:
    """Measuring the rounding, writing and verifying each format, and quantizing each for every copy."""
    written, copies = len(request.formats), sum(each is not None for each in request.precisions)
    first = (spec.tolerance is None) + written if spec.runs_floats else 0
    return Steps(first + written + copies * written, progress)


def _report(
    directory: pathlib.Path,
    artifacts: dict[str, Artifact],
    spec: ExportSpec,
    precision: Quantization | None,
    proof: TargetResult | None,
) -> Report:
    """The `Report` of one bundle."""
    for artifact in artifacts.values():
        artifact.path = str(directory / artifact.path)
    tolerance = spec.tolerance if precision is None else precision.tolerance
    compared = spec if precision is None else spec.usual()
    domain = domain_lines(domains_of(compared)) if spec.runs_floats else []
    return Report(str(directory), artifacts, CEILING if tolerance is None else tolerance, proof, domain)


def _keeps_memory(name: str) -> bool:
    """Whether a format is written last: TensorFlow does not give the memory of a loaded SavedModel back."""
    return FORMATS[FORMATS[name].made_from or name].shares_loaded


class _Job:
    """The float files of a spec, and quantized copies of them, each in a folder that is named after its precision.

    Args:
        spec: `ExportSpec`.
        names: names of the formats.
        title: name of the bundle.
        work: path of the folder to write into.
        steps: `Steps`.

    Attributes:
        twin: `TwinRecord` of what was written, or None.
    """

    def __init__(self, spec: ExportSpec, names: list[str], title: str, work: pathlib.Path, steps: Steps) -> None:
        self._spec, self._names, self._title, self._work, self._steps = spec, names, title, work, steps
        self.twin: TwinRecord | None = None

    def write(self, precisions: Sequence[Quantization | None]) -> dict[str, dict[str, Artifact]]:
        """Writes and verifies a bundle for each precision; returns the artifacts by precision and format."""
        floats = self._work / FLOAT
        floats.mkdir()
        manifest, artifacts = self._write_floats(floats)
        self.twin = manifest.twin
        found = {FLOAT: artifacts}
        if any(precisions):
            from keras_transformer.export.writing.quantizing import QuantizedCopies

            copies = QuantizedCopies(floats, manifest, self._spec, artifacts, self._steps)
            found |= {each.mode: copies.write(each, self._work / each.mode, self._title) for each in precisions if each}
        if None not in precisions:
            shutil.rmtree(floats)
        return found

    def _write_floats(self, folder: pathlib.Path) -> tuple[Manifest, dict[str, Artifact]]:
        """Writes the float bundle; returns its manifest, and the `Artifact` of each format."""
        from keras_transformer.export.graph.traced import TracedModule
        from keras_transformer.export.operations.layers import EVERYWHERE
        from keras_transformer.export.spec.probing.graph_probes import add_graph_probes
        from keras_transformer.export.verification.rounding import RoundingInBackground

        traced = TracedModule(self._spec, EVERYWHERE)
        if self._spec.runs_floats:
            add_graph_probes(self._spec, traced)
        with RoundingInBackground(traced, self._spec) as rounding:
            writer = FloatFiles(self._spec, traced, rounding, folder, self._names, self._steps)
            artifacts = {name: writer.write(name) for name in sorted(self._names, key=_keeps_memory)}
            writer.finish(self._title)
        return writer.manifest, {name: artifacts[name] for name in self._names}

    def prove(self, precision: Quantization | None) -> TargetResult | None:
        """Runs a written bundle on its target, if it has one; the result goes into its manifest and report."""
        if self._spec.target is None:
            return None
        from keras_transformer.export.targets.proof import prove

        folder = self._work / precision_name(precision)
        manifest = read_manifest(folder)
        self._steps.note(f"running on {self._spec.target.name}")
        found = prove(self._spec.target, folder, manifest, dataclasses.replace(self._spec, quantization=precision))
        complete(folder, dataclasses.replace(manifest, target=found.to_dict()), self._title)
        return found


def _lift(folder: pathlib.Path) -> None:
    """Moves the content of a folder into the folder around it."""
    moved = folder.rename(folder.with_name(".moved"))
    for path in list(moved.iterdir()):
        path.rename(moved.parent / path.name)
    moved.rmdir()
