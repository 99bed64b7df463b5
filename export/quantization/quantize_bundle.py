"""`quantize`: another precision of a proven float bundle, without its model and without converting it again."""

import dataclasses
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

from keras_transformer.export.bundle import writing
from keras_transformer.export.bundle.manifest import FILE, check_hashes, file_records, read_manifest, signature_specs
from keras_transformer.export.bundle.probe_files import read_probes
from keras_transformer.export.errors import InvalidBundleError, QuantizationError
from keras_transformer.export.quantization.evaluation import Evaluation
from keras_transformer.export.quantization.options import MODES, Quantization
from keras_transformer.export.quantization.quantizing import quantize_artifact
from keras_transformer.export.reporting.report import Artifact, Parity, Report
from keras_transformer.export.saved_model.library import NAME as SAVED_MODEL
from keras_transformer.export.spec.export_spec import ExportSpec, Signature
from keras_transformer.utils.types import Path


def quantize(
    bundle: Path,
    directory: Path,
    mode: str | Quantization,
    *,
    evaluation: Evaluation | None = None,
    progress: Callable[[str], Any] | None = None,
) -> Report:
    """Writes a quantized copy of a float bundle, and verifies it; needs neither Keras nor the model.

    The files are quantized as `export` does it, and held to the same limits. A SavedModel is quantized with its model only:
    use `export` for it. Patterns of `keep_float` match the paths of variables in ONNX files, the names of tensors in TFLite.

    Args:
        bundle: path of a bundle with float ONNX or TFLite files. It is not changed.
        directory: path of the bundle to write. An existing bundle is replaced.
        mode: "fp16", "int8", "int8_static", "weight_int8", "weight_int4", or a `Quantization`.
        evaluation: `Evaluation`: the loss that quantization may cause.
        progress: called with a line of text for each step.

    Returns:
        A `Report`.

    Raises:
        InvalidBundleError: no bundle, an altered file, or one that is quantized already or has no ONNX or TFLite files;
            or the directory contains something that is not a bundle.
        QuantizationError: the mode is not supported, or costs more than its limits or the evaluation allow.
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
    quantization = Quantization.of(mode)
    if quantization is None:
        raise QuantizationError(f"mode must be one of {', '.join(MODES)}, or a Quantization. Received: None")
    source = pathlib.Path(bundle)
    manifest = read_manifest(source)
    check_hashes(source, manifest)
    names = _formats(source, manifest)
    target = writing.check_target(directory)
    if target == source.resolve():
        raise InvalidBundleError(f"'{directory}' is the float bundle itself: it is not replaced")
    spec = _spec(source, manifest, names, quantization, evaluation)
    report = progress or (lambda line: None)
    artifacts: dict[str, Artifact] = {}
    with writing.replacing(target) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)
        (folder / FILE).unlink()
        _remove_others(folder, manifest, names)
        for name in names:
            report(f"quantizing {name} to {quantization.mode}")
            size = lambda: sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())  # noqa: E731
            artifacts[name] = quantize_artifact(_float_artifact(manifest, name), spec, folder, manifest, size)
        manifest["files"] = file_records(folder)
        writing.write_manifest(folder, manifest)
    for name, artifact in artifacts.items():
        artifact.path = str(target / next(iter(manifest["artifacts"][name]["signatures"].values())))
    return Report(str(target), artifacts, quantization.tolerance or 0.0)


def _formats(source: pathlib.Path, manifest: dict[str, Any]) -> list[str]:
    """The formats to quantize."""
    names = [name for name in manifest["artifacts"] if name != SAVED_MODEL]
    if not names:
        raise InvalidBundleError(f"'{source}' contains no ONNX or TFLite files to quantize")
    for name in names:
        if "quantization" in manifest["artifacts"][name]:
            raise InvalidBundleError(f"the {name} files of '{source}' are quantized already")
    return names


def _spec(
    source: pathlib.Path,
    manifest: dict[str, Any],
    names: list[str],
    quantization: Quantization,
    evaluation: Evaluation | None,
) -> ExportSpec:
    """The spec of a bundle: signatures with their probes, without functions."""
    probes, signatures = read_probes(source), {}
    for key in manifest["signatures"]:
        formats = tuple(name for name in names if key in manifest["artifacts"][name]["signatures"])
        inputs, outputs = signature_specs(manifest, key)
        if formats and not probes.get(key):
            raise InvalidBundleError(f"the bundle has no probe of signature '{key}'")
        if formats:
            signatures[key] = Signature(_no_function, inputs, probes[key], outputs, formats=formats)
    spec = ExportSpec(signatures, manifest["tolerance"], generation=manifest.get("generation"))
    return dataclasses.replace(spec, quantization=quantization, evaluation=evaluation)


def _no_function(tensors: Any) -> Any:
    raise NotImplementedError("a bundle has files, and no functions")


def _float_artifact(manifest: dict[str, Any], name: str) -> Artifact:
    record = manifest["artifacts"][name]
    parity = [Parity(**each) for each in record.get("parity", [])]
    return Artifact(name, next(iter(record["signatures"].values())), record["bytes"], 0.0, parity, 0)


def _remove_others(folder: pathlib.Path, manifest: dict[str, Any], names: list[str]) -> None:
    """Removes the SavedModel, and the report on the float files."""
    for name in set(manifest["artifacts"]) - set(names):
        for path in set(manifest["artifacts"].pop(name)["signatures"].values()):
            shutil.rmtree(folder / path)
    (folder / "report.html").unlink(missing_ok=True)
