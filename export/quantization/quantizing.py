"""The second half of a quantized export: verified float files are quantized, verified again and evaluated."""

import dataclasses
import pathlib
import time
from collections.abc import Callable
from typing import Any, TypeGuard

from keras_transformer.export.bundle.tokenizers import read_tokenizer
from keras_transformer.export.formats import get_format
from keras_transformer.export.quantization.evaluation import Evaluation, check_loss
from keras_transformer.export.quantization.language_behavior import FILE, FloatPredictions, checked_behavior, token_rows
from keras_transformer.export.reporting.report import Artifact
from keras_transformer.export.runtime.loading import available_cores, open_artifact
from keras_transformer.export.spec.export_spec import ExportSpec
from keras_transformer.export.verification.quantized import verify_quantized
from keras_transformer.generation import GenerationSpec


def quantize_artifact(
    artifact: Artifact,
    spec: ExportSpec,
    folder: pathlib.Path,
    manifest: dict[str, Any],
    folder_size: Callable[[], int],
) -> Artifact:
    """Quantizes the files of one format, runs them on the probes, and measures what the task loses.

    A language model is measured on text; see `behavior.Behavior`. The predictions of its float files are kept in the bundle.

    Args:
        artifact: `Artifact` of the float files.
        spec: the `ExportSpec`, with `quantization` and `evaluation`.
        folder: path of the bundle that is being written.
        manifest: its manifest; the record of the format is updated.
        folder_size: function without arguments: the bytes in `folder`.

    Returns:
        `Artifact` of the quantized files.

    Raises:
        QuantizationError: the task loses more than the evaluation allows, or a language model behaves differently.
        ParityError: a change beyond the tolerance of the quantization, or a value that is not finite.
    """
    name, quantization, evaluation = artifact.format, spec.quantization, spec.evaluation
    start = time.perf_counter()
    before = evaluation.measure(_open(folder, manifest, spec, name)) if _has_data(evaluation) else None
    probes = {key: spec.signatures[key].probes for key in spec.names(name)}
    predictions = _float_predictions(folder, manifest, spec, name)
    others_size = folder_size() - artifact.size
    record = manifest["artifacts"][name]
    get_format(name).quantize(spec, folder, record["signatures"])
    record |= {"bytes": folder_size() - others_size, "float_bytes": artifact.size}
    record |= {"quantization": quantization.mode, "tolerance": quantization.tolerance, "milliseconds": {}}
    parity = verify_quantized(folder, name, probes, quantization.tolerance, manifest, record["milliseconds"])
    record["parity"] = [vars(each) for each in parity]
    if predictions:
        record["behavior"] = checked_behavior(predictions, folder, manifest, name, quantization.mode)
    if evaluation and before:
        after = evaluation.measure(_open(folder, manifest, spec, name))
        record["evaluation"] = check_loss(evaluation, f"{name}, {quantization.mode}", before, after)
    return dataclasses.replace(
        artifact,
        size=record["bytes"],
        float_size=artifact.size,
        parity=parity,
        seconds=artifact.seconds + time.perf_counter() - start,
        evaluation=record.get("evaluation"),
        behavior=record.get("behavior"),
    )


def _float_predictions(
    folder: pathlib.Path, manifest: dict[str, Any], spec: ExportSpec, name: str
) -> FloatPredictions | None:
    """What the float model predicts, measured once for all formats; None for what is no language model."""
    if not spec.generation or not {"prefill", "decode"} <= set(spec.names(name)):
        return None
    if (folder / FILE).exists():
        return FloatPredictions.read(folder)
    text = spec.evaluation.text if spec.evaluation else ()
    described = GenerationSpec.from_dict(spec.generation)
    tokens = token_rows(text, read_tokenizer(folder, manifest), described) if len(text) else None
    probes = {key: spec.signatures[key].probes for key in spec.names(name)}
    found = FloatPredictions.measure(folder, manifest, name, probes, tokens)
    found.write(folder)
    return found


def _has_data(evaluation: Evaluation | None) -> TypeGuard[Evaluation]:
    """Whether an evaluation measures more than text."""
    return evaluation is not None and (len(evaluation.inputs) > 0 or evaluation.score is not None)


def _open(folder: pathlib.Path, manifest: dict[str, Any], spec: ExportSpec, name: str) -> Any:
    if spec.generation:
        from keras_transformer.export.runtime.language_runtime import open_language_model

        return open_language_model(folder, manifest, name, available_cores())
    return open_artifact(folder, manifest, name, next(iter(spec.signatures)))
