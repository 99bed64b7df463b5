"""Writes, verifies and quantizes the artifacts of a spec, one format after another."""

import dataclasses
import pathlib
import shutil
import time
from collections.abc import Iterable, Sequence
from typing import Any

from keras_transformer.export.bundle import tokenizers, writing
from keras_transformer.export.bundle.file_names import names_record
from keras_transformer.export.bundle.manifest import new_manifest, read_manifest, write_manifest
from keras_transformer.export.bundle.metadata import check_input_names, check_metadata
from keras_transformer.export.bundle.probe_files import write_probes
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.manifest_records import WeightsRecord
from keras_transformer.export.data.parity import CEILING
from keras_transformer.export.data.report import Artifact, Report, Reports
from keras_transformer.export.data.target_result import TargetResult
from keras_transformer.export.formats import FORMATS, check_formats, written_versions
from keras_transformer.export.quantization.options import PRECISIONS, Quantization, precision_of
from keras_transformer.export.reporting.html_report import write_report
from keras_transformer.export.reporting.progress import Progress, Steps
from keras_transformer.export.verification.outputs import verify_format
from keras_transformer.utils.types import Path

# Where the float files are while they are quantized, beside the quantized bundles.
_FLOATS = precision_of(None)


def export_spec(
    spec: ExportSpec,
    directory: Path,
    formats: str | Iterable[str],
    metadata: dict[str, Any] | None = None,
    progress: Progress = True,
    *,
    tokenizer: Any = None,
    tokenizer_options: dict[str, Any] | None = None,
) -> Report:
    """Writes and verifies a bundle of any signatures; `export` does so for the signatures of a Keras model.

    One bundle is written at a time in a process, since converters share state; other threads wait.

    Args:
        spec: an `ExportSpec` whose probes have the reference outputs.
        directory: path of the bundle.
        formats: names of the formats.
        metadata: dict that describes the model, see `export`; that of the spec by default.
        progress: see `export`.
        tokenizer, tokenizer_options: see `export`.

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
    names = check_formats(formats)
    target = writing.check_target(directory)
    chosen = spec.quantization
    job = _Job(spec.only(names), names, target.name, metadata, (tokenizer, tokenizer_options))
    with writing.replacing(target) as folder, job.steps(progress, chosen is not None):
        if chosen is None:
            artifacts = job.write_floats(folder)[1]
        else:
            artifacts = job.write_precisions(folder, [chosen])[precision_of(chosen)]
            shutil.rmtree(folder / _FLOATS)
            _lift(folder / precision_of(chosen))
        proof = job.prove(folder, chosen)
    return job.report(target, artifacts, chosen, proof)


def export_precisions(
    spec: ExportSpec,
    directory: Path,
    formats: str | Iterable[str],
    precisions: Sequence[Quantization | None],
    metadata: dict[str, Any] | None = None,
    progress: Progress = True,
    *,
    tokenizer: Any = None,
    tokenizer_options: dict[str, Any] | None = None,
) -> Reports:
    """Writes and verifies a bundle for each of several precisions, in folders that are named after them.

    The float files are converted and verified once. The directory appears only when all bundles are verified.

    Args:
        spec: as for `export_spec`; its `quantization` is not used.
        directory: path of the folder of the bundles.
        formats: names of the formats.
        precisions: a `Quantization` of each bundle, or None for the float files.
        metadata, progress, tokenizer, tokenizer_options: as for `export_spec`.

    Returns:
        `Reports` by precision.

    Raises:
        ExportError: any of those that `export` names.
    """
    names = check_formats(formats)
    target = writing.check_target(directory, PRECISIONS)
    job = _Job(spec.only(names), names, target.name, metadata, (tokenizer, tokenizer_options))
    with writing.replacing(target) as folder, job.steps(progress, sum(each is not None for each in precisions)):
        artifacts = job.write_precisions(folder, precisions)
        if None not in precisions:
            shutil.rmtree(folder / _FLOATS)
        proofs = {name: job.prove(folder / name, each) for name, each in _named(precisions)}
    return Reports(
        {name: job.report(target / name, artifacts[name], each, proofs[name]) for name, each in _named(precisions)}
    )


def complete(folder: pathlib.Path, manifest: Manifest, title: str) -> None:
    """Writes the report and the manifest of a bundle, whose other files are written; those of before are replaced.

    Args:
        folder: of the bundle.
        manifest: its manifest, without the records of the files.
        title: name of the bundle.
    """
    write_report(folder, manifest, title)
    write_manifest(folder, manifest)


def _keeps_memory(name: str) -> bool:
    """Whether a format is written last: TensorFlow does not give the memory of a loaded SavedModel back."""
    return FORMATS[name].shares_loaded


class _Job:
    """What one call writes: the float files of a spec, and quantized copies of them.

    Args:
        spec: `ExportSpec`.
        names: names of the formats.
        title: name of the bundle.
        metadata: dict that describes the model; that of the spec by default.
        text: the tokenizer and its options.
    """

    def __init__(
        self,
        spec: ExportSpec,
        names: list[str],
        title: str,
        metadata: dict[str, Any] | None,
        text: tuple[Any, dict[str, Any] | None],
    ) -> None:
        if metadata is not None:
            spec = dataclasses.replace(spec, metadata=metadata)
        check_metadata(spec.metadata)
        check_input_names(spec.metadata, (each.name for key in spec.signatures.values() for each in key.inputs))
        self._spec, self._names, self._title, self._text = spec, names, title, text
        self._steps = Steps(0, False)

    def steps(self, progress: Progress, copies: int) -> Steps:
        """Measuring the rounding, writing and verifying each format, and quantizing each for every copy."""
        written, runs = len(self._names), self._spec.runs_floats
        first = (self._spec.tolerance is None) + written if runs else 0
        self._steps = Steps(first + written + copies * written, progress)
        return self._steps

    def write_floats(self, folder: pathlib.Path) -> tuple[Manifest, dict[str, Artifact]]:
        """Writes the float bundle; returns its manifest, and the `Artifact` of each format."""
        from keras_transformer.export.graph.traced import TracedModule
        from keras_transformer.export.verification.rounding import RoundingInBackground

        traced = TracedModule(self._spec)
        with RoundingInBackground(traced, self._spec) as rounding:
            writer = _BundleWriter(self._spec, traced, rounding, folder, self._steps)
            tokenizer, options = self._text
            if tokenizer is not None:
                writer.add_tokenizer(tokenizer, options)
            artifacts = {name: writer.write(name) for name in sorted(self._names, key=_keeps_memory)}
            writer.finish(self._title)
        return writer.manifest, {name: artifacts[name] for name in self._names}

    def write_precisions(
        self, folder: pathlib.Path, precisions: Sequence[Quantization | None]
    ) -> dict[str, dict[str, Artifact]]:
        """Writes the float bundle, and one for each precision beside it; returns the artifacts by precision."""
        from keras_transformer.export.writing.quantizing import QuantizedCopies

        floats = folder / _FLOATS
        floats.mkdir()
        manifest, artifacts = self.write_floats(floats)
        copies = QuantizedCopies(floats, manifest, self._spec, artifacts, self._steps)
        found = {name: copies.write(each, folder / name, self._title) for name, each in _named(precisions) if each}
        return {_FLOATS: artifacts, **found}

    def prove(self, folder: pathlib.Path, chosen: Quantization | None) -> TargetResult | None:
        """Runs a written bundle on its target, if it has one; the result goes into its manifest and report."""
        if self._spec.target is None:
            return None
        from keras_transformer.export.targets.proof import prove

        manifest = read_manifest(folder)
        self._steps.note(f"running on {self._spec.target.name}")
        found = prove(self._spec.target, folder, manifest, dataclasses.replace(self._spec, quantization=chosen))
        complete(folder, dataclasses.replace(manifest, target=found.to_dict()), self._title)
        return found

    def report(
        self,
        target: pathlib.Path,
        artifacts: dict[str, Artifact],
        chosen: Quantization | None,
        proof: TargetResult | None = None,
    ) -> Report:
        """The `Report` of one bundle."""
        for artifact in artifacts.values():
            artifact.path = str(target / artifact.path)
        tolerance = self._spec.tolerance if chosen is None else chosen.tolerance
        return Report(str(target), artifacts, CEILING if tolerance is None else tolerance, proof)


def _named(precisions: Sequence[Quantization | None]) -> list[tuple[str, Quantization | None]]:
    return [(precision_of(each), each) for each in precisions]


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
        steps: Steps,
    ) -> None:
        self._spec, self._traced, self._rounding = spec, traced, rounding
        self._folder, self._steps = folder, steps
        self.manifest = new_manifest(spec, written_versions())

    def add_tokenizer(self, tokenizer: Any, options: dict[str, Any] | None) -> None:
        """Writes the tokenizer."""
        record = tokenizers.write_tokenizer(self._folder, tokenizer, options)
        self.manifest = dataclasses.replace(self.manifest, tokenizer=record)

    def write(self, name: str) -> Artifact:
        """Writes and verifies the float files of one format; those that are not run, by their weights alone."""
        from keras_transformer.export.verification.weights.check import check_weights

        start = time.perf_counter()
        self._steps.begin(f"writing {name}")
        before = writing.bytes_in(self._folder)
        files = FORMATS[name].write(self._traced, self._spec, self._folder)
        size = writing.bytes_in(self._folder) - before
        weights = check_weights(name, self._traced, self._spec, self._folder, files)
        names = names_record(self._spec, FORMATS[name])
        record = ArtifactRecord(files, size, names, WeightsRecord.from_dict(weights, name), milliseconds={})
        self.manifest = self.manifest.with_artifact(name, record)
        probes = {key: self._spec.signatures[key].probes for key in self._spec.names(name)}
        count = sum(len(each) for each in probes.values())
        if not self._spec.runs_floats:
            return Artifact(name, next(iter(files.values())), size, time.perf_counter() - start, [], count)
        if self._rounding.is_pending:
            self._steps.begin("measuring the rounding of the model")
            self._rounding.wait()
        self._steps.begin(f"verifying {name}")
        times: dict[str, float] = {}
        parity = verify_format(self._folder, name, probes, self._spec.tolerance, self.manifest, times)
        record = dataclasses.replace(record, milliseconds=times, parity=tuple(parity))
        self.manifest = self.manifest.with_artifact(name, record)
        seconds = time.perf_counter() - start
        artifact = Artifact(name, next(iter(files.values())), size, seconds, parity, count)
        self._steps.note(f"verified {name}: {artifact.ratio:.1e} of the scale, {artifact.seconds:.1f} s")
        return artifact

    def finish(self, title: str) -> None:
        """Writes probes, report and manifest."""
        artifacts = {name: self.manifest.artifacts[name] for name in FORMATS if name in self.manifest.artifacts}
        self.manifest = dataclasses.replace(self.manifest, artifacts=artifacts)
        probes = {key: signature.probes for key, signature in self._spec.signatures.items()}
        write_probes(self._folder, probes)
        if self._spec.runs_floats:
            complete(self._folder, self.manifest, title)
