"""The float files of a bundle: written, compared with the Keras model, and described in a manifest."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.bundle import tokenizers, writing
from keras_transformer.export.bundle.file_names import names_record
from keras_transformer.export.bundle.manifest import domains_of, new_manifest, write_manifest
from keras_transformer.export.bundle.preprocessing import ways_of_inputs, write_vocabularies
from keras_transformer.export.bundle.probe_files import write_probes
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.export_spec import ExportSpec, Probe
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.manifest_records import WeightsRecord
from keras_transformer.export.data.parity import Parity
from keras_transformer.export.data.report import Artifact
from keras_transformer.export.errors import ParityError
from keras_transformer.export.formats import FORMATS, written_versions
from keras_transformer.export.reporting.html_report import write_report
from keras_transformer.export.reporting.progress import Steps
from keras_transformer.export.verification.outputs import verify_format, with_cause
from keras_transformer.export.verification.references import check_twin
from keras_transformer.export.writing.sources import Source, Sources

if TYPE_CHECKING:
    from keras_transformer.export.data.preprocessing.steps import Preprocessing
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.verification.rounding import RoundingInBackground


class FloatFiles:
    """The float files of a bundle that is being written, one format after another.

    Args:
        spec: `ExportSpec`.
        traced: the `TracedModule` of the spec.
        rounding: `RoundingInBackground`, which finds the tolerances.
        folder: path of the folder to write into.
        formats: names of the formats.
        steps: `Steps`: each format is one of them to write, and one to verify.

    Attributes:
        manifest: `Manifest` of what is written so far.
    """

    def __init__(
        self,
        spec: ExportSpec,
        traced: TracedModule,
        rounding: RoundingInBackground,
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
        """Writes and verifies the files of one format; those that are not run, by their weights alone."""
        start = time.perf_counter()
        self._steps.begin(f"writing {name}")
        source = self._sources.of(FORMATS[name])
        preprocessing = self._sources.preprocessing(source)
        record = self._write_files(name, source, preprocessing)
        differences = self._differences(source, name)
        record = dataclasses.replace(record, known_differences=_lines(differences))
        self.manifest = self.manifest.with_artifact(name, record)
        probes = self._probes(name, differences)
        ways = ways_of_inputs(self._spec, preprocessing)
        parity: list[Parity] = []
        if self._spec.runs_floats:
            parity = self._verify(name, source, probes)
        else:
            self._check_twin()
        figures = (record.size, time.perf_counter() - start, parity, sum(map(len, probes.values())))
        path, known = next(iter(record.signatures.values())), record.known_differences
        artifact = Artifact(name, path, *figures, preprocessing=ways, known_differences=known)
        if self._spec.runs_floats:
            self._steps.note(f"verified {name}: {artifact.ratio:.1e} of the scale, {artifact.seconds:.1f} s")
        return artifact

    def _write_files(self, name: str, source: Source, preprocessing: Mapping[str, Preprocessing]) -> ArtifactRecord:
        """Writes the files of one format, and compares their weights with the variables."""
        from keras_transformer.export.verification.weights.check import check_weights

        write_vocabularies(self._folder, self._sources.vocabularies(preprocessing))
        before = writing.bytes_in(self._folder)
        files = self._files(source)
        size = writing.bytes_in(self._folder) - before
        weights = check_weights(name, source.traced, source.spec, self._folder, files)
        names = names_record(source.spec, source.format)
        found = WeightsRecord.from_dict(weights, name)
        return ArtifactRecord(files, size, names, dict(preprocessing), found, milliseconds={})

    def _verify(self, name: str, source: Source, probes: Mapping[str, Sequence[Probe]]) -> list[Parity]:
        """Compares the files of one format with the model on probes; the manifest has the result."""
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
        record = dataclasses.replace(self.manifest.artifact(name), milliseconds=times, parity=tuple(parity))
        self.manifest = self.manifest.with_artifact(name, record)
        return parity

    def finish(self, title: str) -> None:
        """Writes probes, report and manifest."""
        artifacts = {name: self.manifest.artifacts[name] for name in FORMATS if name in self.manifest.artifacts}
        domain = domains_of(self._spec) if self._spec.runs_floats else {}
        self.manifest = dataclasses.replace(self.manifest, artifacts=artifacts, domain=domain)
        write_probes(self._folder, self._spec.probes())
        if self._spec.runs_floats:
            complete(self._folder, self.manifest, title)

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
