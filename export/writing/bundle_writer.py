"""Writes, verifies and quantizes the artifacts of a spec, one format after another."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_transformer.export.bundle import tokenizers, writing
from keras_transformer.export.bundle.file_names import names_record
from keras_transformer.export.bundle.manifest import domains_of, new_manifest, read_manifest, write_manifest
from keras_transformer.export.bundle.metadata import check_input_names, check_metadata
from keras_transformer.export.bundle.preprocessing import ways_of_inputs, write_vocabularies
from keras_transformer.export.bundle.probe_files import write_probes
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.domain import domain_lines
from keras_transformer.export.data.export_spec import ExportSpec, Probe
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.manifest_records import WeightsRecord
from keras_transformer.export.data.parity import CEILING, TwinRecord
from keras_transformer.export.data.report import Artifact, Report, Reports
from keras_transformer.export.data.target_result import TargetResult
from keras_transformer.export.errors import ParityError
from keras_transformer.export.formats import DEFAULT_FORMATS, FORMATS, check_formats, written_versions
from keras_transformer.export.quantization.options import FLOAT, Quantization
from keras_transformer.export.quantization.precisions import Mode, precision_name, precision_of
from keras_transformer.export.reporting.html_report import write_report
from keras_transformer.export.reporting.progress import Progress, Steps
from keras_transformer.export.request import Request
from keras_transformer.export.verification.outputs import verify_format, with_cause
from keras_transformer.export.verification.references import check_preprocessing, check_twin
from keras_transformer.export.writing.sources import Source, Sources
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
    spec, target = spec.only(request.formats), request.directory
    check_metadata(spec.metadata)
    check_input_names(spec.metadata, (each.name for key in spec.signatures.values() for each in key.inputs))
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


def complete(folder: pathlib.Path, manifest: Manifest, title: str) -> None:
    """Writes the report and the manifest of a bundle, whose other files are written; those of before are replaced.

    Args:
        folder: of the bundle.
        manifest: its manifest, without the records of the files.
        title: name of the bundle.
    """
    write_report(folder, manifest, title)
    write_manifest(folder, manifest)


def _lines(differences: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """The lines of all signatures, each once."""
    return tuple(dict.fromkeys(line for each in differences.values() for line in each.values()))


def _has_nan(probe: Probe, names: Iterable[str]) -> bool:
    """Whether one of these inputs of a probe has NaN."""
    arrays = [probe.inputs[name] for name in names if name in probe.inputs]
    return any(each.dtype.kind == "f" and np.isnan(each).any() for each in arrays)


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
            writer = _BundleWriter(self._spec, traced, rounding, folder, self._names, self._steps)
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


class _BundleWriter:
    """A bundle that is being written: its folder, its manifest, and the traced spec."""

    def __init__(
        self,
        spec: ExportSpec,
        traced: Any,
        rounding: Any,
        folder: pathlib.Path,
        formats: Iterable[str],
        steps: Steps,
    ) -> None:
        self._spec, self._rounding = spec, rounding
        self._folder, self._steps = folder, steps
        names = list(formats)
        self._sources = Sources(spec, traced, names)
        self.manifest = new_manifest(spec, written_versions(names))
        if spec.tokenizer is not None:
            record = tokenizers.write_tokenizer(folder, spec.tokenizer, spec.tokenizer_options)
            self.manifest = dataclasses.replace(self.manifest, tokenizer=record)

    def write(self, name: str) -> Artifact:
        """Writes and verifies the float files of one format; those that are not run, by their weights alone."""
        from keras_transformer.export.verification.weights.check import check_weights

        start = time.perf_counter()
        self._steps.begin(f"writing {name}")
        source = self._sources.of(FORMATS[name])
        preprocessing = self._sources.preprocessing(source)
        write_vocabularies(self._folder, self._sources.vocabularies(preprocessing))
        before = writing.bytes_in(self._folder)
        files = self._files(source)
        size = writing.bytes_in(self._folder) - before
        weights = check_weights(name, source.traced, source.spec, self._folder, files)
        names = names_record(source.spec, source.format)
        differences = self._differences(source, name)
        record = ArtifactRecord(
            files,
            size,
            names,
            preprocessing,
            WeightsRecord.from_dict(weights, name),
            milliseconds={},
            known_differences=_lines(differences),
        )
        self.manifest = self.manifest.with_artifact(name, record)
        probes = self._probes(name, differences)
        count = sum(map(len, probes.values()))
        ways = ways_of_inputs(self._spec, preprocessing)
        if not self._spec.runs_floats:
            self._check_twin()
            seconds = time.perf_counter() - start
            return Artifact(name, next(iter(files.values())), size, seconds, [], count, preprocessing=ways)
        if self._rounding.is_pending:
            self._steps.begin("measuring the rounding of the model")
            self._rounding.wait()
        self._check_twin()
        self._steps.begin(f"verifying {name}")
        times: dict[str, float] = {}
        try:
            parity = verify_format(self._folder, name, probes, self._spec.tolerance, self.manifest, times)
        except ParityError as error:
            raise with_cause(error, source.traced.graphs.values(), self._spec.locate) from None
        record = dataclasses.replace(record, milliseconds=times, parity=tuple(parity))
        self.manifest = self.manifest.with_artifact(name, record)
        seconds = time.perf_counter() - start
        figures = (name, next(iter(files.values())), size, seconds, parity, count)
        artifact = Artifact(*figures, preprocessing=ways, known_differences=_lines(differences))
        self._steps.note(f"verified {name}: {artifact.ratio:.1e} of the scale, {artifact.seconds:.1f} s")
        return artifact

    def _check_twin(self) -> None:
        """Compares the model with the one that was handed over, if that is another one; the manifest has the result."""
        if self.manifest.twin is None:
            self.manifest = dataclasses.replace(self.manifest, twin=check_twin(self._spec))

    def _differences(self, source: Source, name: str) -> dict[str, dict[str, str]]:
        """What the files of a format compute otherwise than Keras, as far as it is known: by signature and input."""
        from keras_transformer.export.operations.differences import known_differences
        from keras_transformer.export.operations.operation import ONNX
        from keras_transformer.export.operations.recurrence import has_operators

        graphs, spec = source.traced.graphs, source.spec
        recurrent = [each.name for each in spec.layers if name == ONNX and has_operators([each])]
        return {key: known_differences(graphs[key], name, spec.locate, recurrent) for key in spec.names(name)}

    def _probes(self, name: str, differences: Mapping[str, Mapping[str, str]]) -> dict[str, list[Probe]]:
        """The probes of a format, without further ones with NaN in an input of which it is said that the files differ."""
        found = self._spec.probes(further=True)
        probes: dict[str, list[Probe]] = {}
        for key in self._spec.names(name):
            kept, known = len(self._spec.signatures[key].probes), differences[key]
            probes[key] = found[key][:kept] + [each for each in found[key][kept:] if not _has_nan(each, known)]
        return probes

    def _files(self, source: Source) -> dict[str, str]:
        """Writes the float files of a format; returns their paths by signature."""
        if source.format.made_from is None:
            return source.format.write(source.traced, source.spec, self._folder)
        files = self.manifest.artifact(source.format.made_from).signatures
        return source.format.convert(dict(files), source.spec, self._folder)

    def finish(self, title: str) -> None:
        """Writes probes, report and manifest."""
        artifacts = {name: self.manifest.artifacts[name] for name in FORMATS if name in self.manifest.artifacts}
        domain = domains_of(self._spec) if self._spec.runs_floats else {}
        self.manifest = dataclasses.replace(self.manifest, artifacts=artifacts, domain=domain)
        write_probes(self._folder, self._spec.probes())
        if self._spec.runs_floats:
            complete(self._folder, self.manifest, title)
