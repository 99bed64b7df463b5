"""ONNX files of an engine: written, verified, and described in a manifest."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable

from keras_transformer.export.bundle import writing
from keras_transformer.export.bundle.file_names import names_record
from keras_transformer.export.bundle.manifest import new_manifest
from keras_transformer.export.bundle.probe_files import write_probes
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.report import Artifact
from keras_transformer.export.formats import written_versions
from keras_transformer.export.graph.traced import TracedModule
from keras_transformer.export.onnx import convert as onnx
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.operations.layers import EVERYWHERE
from keras_transformer.export.verification.outputs import verify_format
from keras_transformer.export.verification.rounding import measure_rounding

Rename = Callable[[ExportSpec, dict[str, pathlib.Path]], ExportSpec]


def write_onnx(
    spec: ExportSpec, work: pathlib.Path, folder: str = "", rename: Rename | None = None
) -> tuple[Manifest, Artifact, ExportSpec]:
    """Writes the files of a spec in float32 and verifies them.

    Args:
        spec: `ExportSpec`, with the outputs of its probes.
        work: folder of the bundle.
        folder: folder of the files in it; "" for the bundle's own.
        rename: function that gives the files and the spec other names: of the spec, and of the path of each signature.

    Returns:
        `(manifest, artifact, spec)`: the manifest, without the record of the files; the `Artifact`; and the spec under the
        names of the files.

    Raises:
        ConversionError, ParityError, UnsupportedOpError, WeightError: see `export`.
    """
    start = time.perf_counter()
    traced = TracedModule(spec, EVERYWHERE)
    if spec.tolerance is None:
        measure_rounding(traced, spec)
    (work / folder).mkdir(exist_ok=True)
    found = onnx.write(traced, spec, work / folder)
    paths = {name: f"{folder}/{path}" if folder else path for name, path in found.items()}
    if rename is not None:
        spec = rename(spec, {name: work / path for name, path in paths.items()})
    record = ArtifactRecord(paths, writing.bytes_in(work), names_record(spec, ONNX))
    manifest = new_manifest(spec, written_versions()).with_artifact(onnx.ONNX, record)
    probes = {name: signature.probes for name, signature in spec.signatures.items()}
    parity = verify_format(work, onnx.ONNX, probes, spec.tolerance, manifest)
    manifest = manifest.with_artifact(onnx.ONNX, dataclasses.replace(record, parity=tuple(parity)))
    write_probes(work, probes)
    count = sum(map(len, probes.values()))
    path = next(iter(paths.values()))
    artifact = Artifact(onnx.ONNX, path, record.size, time.perf_counter() - start, parity, count)
    return manifest, artifact, spec
