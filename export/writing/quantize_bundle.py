"""`quantize`: other precisions of a proven float bundle, without its model and without converting it again."""

import dataclasses
import pathlib
from typing import NoReturn, overload

from keras_transformer.export.bundle import writing
from keras_transformer.export.bundle.manifest import check_hashes, read_manifest
from keras_transformer.export.bundle.probe_files import read_probes
from keras_transformer.export.data.export_spec import ExportSpec, Signature
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.report import Artifact, Report, Reports
from keras_transformer.export.errors import InvalidBundleError, QuantizationError
from keras_transformer.export.quantization.options import MODES, PRECISIONS
from keras_transformer.export.quantization.precisions import Mode, Modes, precisions_of
from keras_transformer.export.reporting.progress import Progress, Steps
from keras_transformer.export.runtime.libraries import SAVED_MODEL
from keras_transformer.export.verification.quantized.evaluation import Evaluation
from keras_transformer.export.writing.data_checks import check_data
from keras_transformer.export.writing.quantizing import QuantizedCopies
from keras_transformer.utils.types import Path


@overload
def quantize(
    bundle: Path,
    directory: Path,
    mode: Mode,
    *,
    evaluation: Evaluation | None = ...,
    progress: Progress = ...,
) -> Report: ...


@overload
def quantize(
    bundle: Path,
    directory: Path,
    mode: Modes,
    *,
    evaluation: Evaluation | None = ...,
    progress: Progress = ...,
) -> Reports: ...


def quantize(
    bundle: Path,
    directory: Path,
    mode: Mode | Modes,
    *,
    evaluation: Evaluation | None = None,
    progress: Progress = True,
) -> Report | Reports:
    """Writes a quantized copy of a float bundle, and verifies it; needs neither Keras nor the model.

    The files are quantized as `export` does it, and held to the same limits. A SavedModel is quantized with its model only:
    use `export` for it. Patterns of `keep_float` match the paths of variables in ONNX files, the names of tensors in TFLite.

    Args:
        bundle: path of a bundle with float ONNX or TFLite files. It is not changed.
        directory: path of the bundle to write. An existing bundle is replaced.
        mode: "fp16", "int8", "weight_int8", "weight_int4", or a mode with options, such as `FullInt8(calibration)`,
            `Gguf(file)` or `Learned(file)`. For a list of several a bundle each is written, in folders of `directory` that
            are named after them: `directory/int8`.
        evaluation: `Evaluation`: the loss that quantization may cause.
        progress: True for a bar on a terminal and lines elsewhere, on stderr; False for nothing; or a function, called
            with a line of text for each step.

    Returns:
        A `Report`; for several precisions `Reports`, a dict of them by precision.

    Raises:
        InvalidBundleError: no bundle, an altered file, or one that is quantized already or has no ONNX or TFLite files;
            or the directory contains something that is not a bundle.
        QuantizationError: the mode is not supported, or costs more than its limits or the evaluation allow.
        WeightError: a weight is further from the float one than half a step of its scale.
        ParityError: an output changes more than the mode may change it.

    Example:

    >>> import keras
    >>> from keras_transformer.export import export, quantize
    >>> model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64)])
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["onnx"])
    >>> report = quantize("/tmp/keras_transformer_doctest", "/tmp/keras_transformer_doctest_int8", "int8")
    >>> report["onnx"].size < 0.5 * report["onnx"].float_size
    True
    """
    is_several = isinstance(mode, (list, tuple))
    modes = precisions_of(mode)
    chosen = [each for each in modes if each is not None]
    if len(chosen) < len(modes):
        raise QuantizationError(f"mode must be one of {', '.join(MODES)}, or a Quantization. Received: {mode!r}")
    source = pathlib.Path(bundle)
    manifest = read_manifest(source)
    check_hashes(source, manifest)
    names = _formats(source, manifest)
    target = writing.check_target(directory, precisions=PRECISIONS if is_several else ())
    if target == source.resolve() or source.resolve().is_relative_to(target):
        raise InvalidBundleError(f"'{directory}' is the float bundle itself, or contains it: it is not replaced")
    spec = _spec(source, manifest, names, evaluation)
    check_data(spec, chosen)
    artifacts = {name: _float_artifact(manifest, name) for name in names}
    reports = Reports()
    with writing.replacing(target) as work, Steps(len(chosen) * len(names), progress) as steps:
        copies = QuantizedCopies(source, manifest, spec, artifacts, steps)
        for each in chosen:
            name = each.mode if is_several else ""
            found = copies.write(each, work / name, target.name)
            for artifact in found.values():
                artifact.path = str(target / name / artifact.path)
            reports[each.mode] = Report(str(target / name), found, each.tolerance or 0.0)
    return reports if is_several else reports[chosen[0].mode]


def _formats(source: pathlib.Path, manifest: Manifest) -> list[str]:
    """The formats to quantize."""
    names = [name for name in manifest.artifacts if name != SAVED_MODEL]
    if not names:
        raise InvalidBundleError(f"'{source}' contains no ONNX or TFLite files to quantize")
    for name in names:
        if manifest.artifact(name).quantization is not None:
            raise InvalidBundleError(f"the {name} files of '{source}' are quantized already")
    return names


def _spec(
    source: pathlib.Path,
    manifest: Manifest,
    names: list[str],
    evaluation: Evaluation | None,
) -> ExportSpec:
    """The spec of a bundle: signatures with their probes, without functions."""
    probes, signatures = read_probes(source), {}
    for key, signature in manifest.signatures.items():
        formats = tuple(name for name in names if key in manifest.artifact(name).signatures)
        if formats and not probes.get(key):
            raise InvalidBundleError(f"the bundle has no probe of signature '{key}'")
        if formats:
            signatures[key] = Signature(_no_function, signature.inputs, probes[key], signature.outputs, formats=formats)
    spec = ExportSpec(signatures, manifest.tolerance, generation=manifest.generation, metadata=manifest.metadata)
    return dataclasses.replace(spec, evaluation=evaluation)


def _no_function(tensors: object) -> NoReturn:
    raise NotImplementedError("a bundle has files, and no functions")


def _float_artifact(manifest: Manifest, name: str) -> Artifact:
    record = manifest.artifact(name)
    figures = (next(iter(record.signatures.values())), record.size, 0.0, list(record.parity or ()), 0)
    return Artifact(name, *figures, known_differences=record.known_differences)
