"""The second half of a quantized export: from proven float files to small ones, and what that costs."""

import dataclasses
import importlib
import os
import time

from keras_transformer.export.quantization.evaluation import judge
from keras_transformer.export.runtime import loading as runtime
from keras_transformer.export.verification import verify

# Each has `quantize(spec, directory, files)`, which replaces the files of its format in a bundle that is being written.
_QUANTIZERS = {
    "saved_model": "keras_transformer.export.saved_model.quantize",
    "tflite": "keras_transformer.export.tflite.quantize",
    "onnx": "keras_transformer.export.onnx.quantize",
}


def quantize_artifact(artifact, spec, work, manifest, size_of):
    """Quantizes the files of one format, runs them on the probes, and measures what the task loses.

    Args:
        artifact: `Artifact` of the float files.
        spec: the `ExportSpec`, with `quantization` and `evaluation`.
        work: `pathlib.Path` of the bundle that is being written.
        manifest: its manifest; the record of the format is brought up to date.
        size_of: function without arguments: the bytes in `work`.

    Returns:
        `Artifact` of the quantized files.

    Raises:
        QuantizationError: the task loses more than the evaluation allows.
        ParityError: a difference beyond the tolerance of the quantization, or a value that is not finite.
    """
    name, quantization, evaluation = artifact.format, spec.quantization, spec.evaluation
    start = time.perf_counter()
    measured = evaluation and evaluation.measure(_open(work, manifest, spec, name))
    rest = size_of() - artifact.size
    record = manifest["artifacts"][name]
    module = f"keras_transformer.export.{name}.ternary" if quantization.mode == "ternary" else _QUANTIZERS[name]
    importlib.import_module(module).quantize(spec, work, record["signatures"])
    record |= {"bytes": size_of() - rest, "float_bytes": artifact.size}
    record |= {"quantization": quantization.mode, "tolerance": quantization.tolerance}
    probes = {key: spec.signatures[key].probes for key in spec.names(name)}
    record["milliseconds"] = {}
    parity = verify.verify_format(work, name, probes, quantization.tolerance, manifest, record["milliseconds"])
    record["parity"] = [vars(each) for each in parity]
    if evaluation:
        after = evaluation.measure(_open(work, manifest, spec, name))
        record["evaluation"] = judge(evaluation, f"{name}, {quantization.mode}", measured, after)
    return dataclasses.replace(
        artifact,
        size=record["bytes"],
        float_size=artifact.size,
        parity=parity,
        seconds=artifact.seconds + time.perf_counter() - start,
        evaluation=record.get("evaluation"),
    )


def _open(work, manifest, spec, name):
    if spec.generation:
        from keras_transformer.export.runtime.language_runtime import open_language_model

        return open_language_model(work, manifest, name, os.cpu_count())
    return runtime.open_artifact(work, manifest, name, next(iter(spec.signatures)))
