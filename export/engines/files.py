"""What the engines share whose files are written from one graph."""

from __future__ import annotations

import os
import pathlib

from keras_transformer.export.bundle.manifest import new_manifest
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.parity import CEILING
from keras_transformer.export.data.report import Artifact
from keras_transformer.export.errors import ExportError, InvalidBundleError
from keras_transformer.export.formats import written_versions
from keras_transformer.export.graph.traced import TracedModule
from keras_transformer.export.operations.layers import EVERYWHERE
from keras_transformer.export.quantization.options import Quantization
from keras_transformer.export.tflite import convert as tflite
from keras_transformer.export.verification.outputs import verify_format
from keras_transformer.export.verification.rounding import measure_rounding
from keras_transformer.utils.types import Path


def check_file_target(path: Path, suffix: str, reason: str = "") -> pathlib.Path:
    """The absolute path of a file that may be written.

    Args:
        path: path of the file.
        suffix: what its name must end in.
        reason: text for the error, such as why it must.

    Raises:
        InvalidBundleError: it has another suffix, is a directory, or its folder cannot be written.
    """
    target = pathlib.Path(path).resolve()
    if target.suffix != suffix:
        raise InvalidBundleError(f"'{target}' must end in {suffix}{reason}")
    if target.is_dir():
        raise InvalidBundleError(f"'{target}' is a directory")
    parent = next(each for each in target.parents if each.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InvalidBundleError(f"cannot write '{target}': '{parent}' is not a writable directory")
    return target


def check_tolerance(tolerance: float | None) -> None:
    """Refuses a tolerance that is no positive number.

    Raises:
        ExportError: it is not.
    """
    if tolerance is not None and not 0 < tolerance < float("inf"):
        raise ExportError(f"tolerance must be a positive number, not {tolerance}")


def reported_tolerance(quantization: Quantization | None, tolerance: float | None) -> float:
    """The tolerance of a `Report`: that of the quantization, or of the float files."""
    if quantization is not None and quantization.tolerance is not None:
        return quantization.tolerance
    return CEILING if tolerance is None else tolerance


def write_tflite(spec: ExportSpec, work: pathlib.Path) -> tuple[Artifact, Manifest]:
    """Writes `model.tflite` in float and verifies it in LiteRT.

    Args:
        spec: `ExportSpec`, with the outputs of its probes.
        work: folder to write into.

    Returns:
        Its `Artifact`, and the manifest.

    Raises:
        ExportError: see `write_mediapipe` and `write_litertlm`.
    """
    traced = TracedModule(spec, EVERYWHERE)
    if spec.tolerance is None:
        measure_rounding(traced, spec)
    files = tflite.write(traced, spec, work)
    path = work / tflite.FILE
    record = ArtifactRecord(files, path.stat().st_size)
    manifest = new_manifest(spec, written_versions()).with_artifact(tflite.TFLITE, record)
    probes = {name: signature.probes for name, signature in spec.signatures.items()}
    parity = verify_format(work, tflite.TFLITE, probes, spec.tolerance, manifest)
    return Artifact(tflite.TFLITE, str(path), record.size, 0.0, parity, sum(map(len, probes.values()))), manifest
