"""Writes, verifies and quantizes the artifacts of a spec, one format after another."""

import pathlib
import shutil
import time
from collections.abc import Callable, Iterable
from typing import Any

from keras_transformer.export.bundle import tokenizers, writing
from keras_transformer.export.bundle.manifest import file_records
from keras_transformer.export.bundle.probe_files import write_probes
from keras_transformer.export.formats import FORMATS, check_formats
from keras_transformer.export.reporting.html_report import write_report
from keras_transformer.export.reporting.report import Artifact, Report
from keras_transformer.export.spec.export_spec import ExportSpec
from keras_transformer.export.verification import verify
from keras_transformer.utils.types import Path

Progress = Callable[[str], Any]


def export_spec(
    spec: ExportSpec,
    directory: Path,
    formats: str | Iterable[str],
    metadata: dict[str, Any] | None = None,
    progress: Progress | None = None,
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
        metadata: dict to keep in the manifest.
        progress: called with lines of text, or None.
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
    spec = spec.only(names)
    with writing.replacing(target) as folder:
        writer = _BundleWriter(spec, folder, metadata, progress)
        if tokenizer is not None:
            tokenizers.write_tokenizer(folder, writer.manifest, tokenizer, tokenizer_options)
        artifacts = {name: writer.write(name) for name in _with_sources(names, spec)}
        artifacts = {name: artifacts[name] for name in names}
        if spec.quantization:
            artifacts = {name: writer.quantize(each) for name, each in artifacts.items()}
        writer.finish(names, target.name)
    for artifact in artifacts.values():
        artifact.path = str(target / artifact.path)
    tolerance = spec.quantization.tolerance if spec.quantization else writer.manifest["tolerance"]
    return Report(str(target), artifacts, tolerance)


def _with_sources(names: list[str], spec: ExportSpec) -> list[str]:
    """The formats, and those that they are converted from, unless the signatures differ."""
    needed = {FORMATS[name].source for name in names if _shares_source(name, spec)}
    return [name for name in FORMATS if name in names or name in needed]


def _shares_source(name: str, spec: ExportSpec) -> bool:
    source = FORMATS[name].source
    return source is not None and spec.names(name) == spec.names(source)


class _BundleWriter:
    """A bundle that is being written: its folder, its manifest, and the traced spec."""

    def __init__(
        self,
        spec: ExportSpec,
        folder: pathlib.Path,
        metadata: dict[str, Any] | None,
        progress: Progress | None,
    ) -> None:
        from keras_transformer.export.spec.traced import TracedModule
        from keras_transformer.export.verification.rounding import measure_rounding

        self._spec = spec
        self._folder = folder
        self._report_progress: Progress = progress or (lambda line: None)
        self._traced = TracedModule(spec)
        if spec.tolerance is None:
            self._report_progress("measuring the rounding of the model")
            measure_rounding(self._traced, spec)
        self.manifest = writing.new_manifest(spec, metadata)

    def write(self, name: str) -> Artifact:
        """Writes and verifies the float files of one format."""
        from keras_transformer.export.verification.weights import check_weights

        start = time.perf_counter()
        self._report_progress(f"writing {name}")
        before = self._size()
        files = FORMATS[name].write(self._traced, self._spec, self._folder)
        size = self._size() - before
        weights = check_weights(name, self._traced, self._spec, self._folder, files)
        record: dict[str, Any] = {"signatures": files, "bytes": size, "weights": weights, "milliseconds": {}}
        self.manifest["artifacts"][name] = record
        self._report_progress(f"verifying {name}")
        probes = {key: self._spec.signatures[key].probes for key in self._spec.names(name)}
        parity = self._verify(name, probes, record["milliseconds"])
        record["parity"] = [vars(each) for each in parity]
        count = sum(len(each) for each in probes.values())
        seconds = time.perf_counter() - start
        artifact = Artifact(name, next(iter(files.values())), size, seconds, parity, count)
        self._report_progress(f"verified {name}: {artifact.ratio:.1e} of the scale, {artifact.seconds:.1f} s")
        return artifact

    def quantize(self, artifact: Artifact) -> Artifact:
        """Replaces the float files of one format by quantized ones."""
        from keras_transformer.export.quantization.quantizing import quantize_artifact

        self._report_progress(f"quantizing {artifact.format}")
        artifact = quantize_artifact(artifact, self._spec, self._folder, self.manifest, self._size)
        share = artifact.size / (artifact.float_size or artifact.size)
        self._report_progress(f"quantized {artifact.format}: {share:.2f} of the size")
        return artifact

    def finish(self, names: list[str], title: str) -> None:
        """Removes artifacts that were only a source of others; writes probes, report and manifest."""
        for name in set(self.manifest["artifacts"]) - set(names):
            for path in set(self.manifest["artifacts"].pop(name)["signatures"].values()):
                shutil.rmtree(self._folder / path)
        probes = {key: signature.probes for key, signature in self._spec.signatures.items()}
        write_probes(self._folder, probes, writing.PROBE_BYTES)
        write_report(self._folder, self.manifest, title)
        self.manifest["files"] = file_records(self._folder)
        writing.write_manifest(self._folder, self.manifest)

    def _verify(self, name: str, probes: dict[str, Any], times: dict[str, float]) -> list[Any]:
        return verify.verify_format(self._folder, name, probes, self._spec.tolerance, self.manifest, times)

    def _size(self) -> int:
        """Bytes of the files written so far."""
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())
