"""`export`: one call from a Keras model to files that are proven to compute what it computes."""

import dataclasses
import time

from keras_transformer.export import formats as all_formats
from keras_transformer.export.bundle import tokenizers
from keras_transformer.export.bundle import writing as bundle
from keras_transformer.export.bundle.manifest import file_records
from keras_transformer.export.bundle.probe_files import write_probes
from keras_transformer.export.errors import ExportError, QuantizationError
from keras_transformer.export.quantization import ternary
from keras_transformer.export.quantization.options import Quantization
from keras_transformer.export.reporting.html_report import write_report
from keras_transformer.export.reporting.report import Artifact, Report
from keras_transformer.export.spec.export_spec import DEFAULT_TOLERANCE
from keras_transformer.export.verification import verify
from keras_transformer.export.verification.conditioning import explaining


def export(
    model,
    directory,
    formats=tuple(all_formats.FORMATS),
    *,
    tolerance=DEFAULT_TOLERANCE,
    probes=None,
    dynamic_axes=None,
    metadata=None,
    tokenizer=None,
    tokenizer_options=None,
    generation=None,
    static=None,
    onnx=None,
    quantize=None,
    evaluation=None,
    progress=None,
):
    """Writes a model as SavedModel, TFLite and ONNX, and proves each file in its own runtime.

    Every artifact is run on several probes (batch 1 and 5, short and long, padded and not) and compared with the Keras
    model. The directory appears only when everything in it is proven; until then, and after any error, whatever was
    there before stays. A model trained in mixed precision is exported as float32, and so is one on another Keras
    backend, through a process that runs Keras on TensorFlow.

    Args:
        model: a built Functional or Sequential Keras model.
        directory: path of the bundle to write. An existing bundle is replaced; anything else there is left alone.
        formats: names out of `"saved_model"`, `"tflite"`, `"onnx"`. All by default.
        tolerance: largest difference allowed, as a share of each output's largest absolute value. Default 1e-5; at least
            0.1 for a model with ternary weights, whose roundings make much of little: see `feedforward.BitDense`.
        probes: list of dicts: arrays by input name, or sizes by axis name. Made up by default.
        dynamic_axes: dict of input name to a dict of axis index to axis name; inputs that share a name share a size.
            By default `batch`, then `length` (or `height` and `width`).
        metadata: dict to keep in the manifest, such as class names; JSON values only.
        tokenizer: a tokenizer of `keras_transformer.text`, to go into the bundle, which then takes text; that of a
            `LanguageModel` by default.
        tokenizer_options: dict of how texts are encoded: "start", "end", "max_length"; see `Tokenizer.encode`.
        generation: `GenerationOptions` of a `LanguageModel`; False to write its one forward pass, `serve`, instead.
        static: dict of axis name to size, such as `{"batch": 1, "length": 128}`, or a list of such: TFLite has a copy of
            the signature for these shapes, `serve_1x128`, which runtimes take by themselves and phones' GPUs need. Those
            of a `LanguageModel` are set by `generation`.
        onnx: `OnnxOptions`: opset, and what the optimizer may use; None for what every supported ONNX Runtime takes.
        quantize: "fp16", "int8", "int8_static", "weight_int8", "weight_int4", or a `Quantization`; None for float32, with
            ternary weights packed in 2 bits. The float files are proven first, then replaced.
        evaluation: `Evaluation`: what quantization may cost the task.
        progress: called with a line of text as each step begins and ends.

    Returns:
        A `Report`: print it for a table.

    Raises:
        UnknownFormatError: a format does not exist.
        InvalidModelError: the model is not functional or not built, or an argument does not fit it.
        InvalidBundleError: the directory holds something that is not a bundle.
        UnsupportedOpError: a format lacks an op; names the op and its layer.
        ParityError: an artifact differs from the Keras model by more than the tolerance.
        ConversionError: a converter failed for another reason.
        QuantizationError: what is asked of quantization cannot be had, or costs more than the evaluation allows.
        OutOfSpaceError: the disk is full.

    Example:

    >>> import keras
    >>> from keras_transformer.export import export
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["onnx"])
    >>> report["onnx"].ratio <= 1e-5
    True
    """
    import keras

    from keras_transformer.training.adapters import merged

    names = all_formats.check_formats(formats)
    target = bundle.check_target(directory)
    bundle.check_metadata(metadata)
    if not 0 < tolerance < float("inf"):
        raise ExportError(f"tolerance must be a positive number, not {tolerance}")
    tokenizers.check_options(tokenizer_options)
    quantization = Quantization.of(quantize)
    if ternary.holds(model):
        quantization = quantization or Quantization("ternary")
        tolerance = max(tolerance, ternary.TOLERANCE)
    if evaluation is not None and quantization is None:
        raise QuantizationError("an evaluation is of what quantization costs: give quantize too")
    options = {"tolerance": tolerance, "probes": probes, "dynamic_axes": dynamic_axes, "static": static}
    text = {"tokenizer": tokenizer or getattr(model, "tokenizer", None), "tokenizer_options": tokenizer_options}
    with merged(model):
        if keras.backend.backend() != "tensorflow":
            from keras_transformer.export.spec.other_backend import export_elsewhere

            options |= {"metadata": metadata, "generation": generation, "onnx": onnx, **text}
            options |= {"quantize": quantization, "evaluation": evaluation}
            return export_elsewhere(model, target, names, progress, **options)
        spec = _spec(model, generation, **options)
        spec = dataclasses.replace(spec, onnx=onnx, quantization=quantization, evaluation=evaluation)
        if text["tokenizer"] is not None and "saved_model" in names:
            from keras_transformer.export.spec.text_signatures import add_text_signature

            add_text_signature(spec, text["tokenizer"], tokenizer_options, model if spec.generation else None)
        return export_spec(spec, target, names, metadata, progress, **text)


def _spec(model, generation, tolerance, probes, dynamic_axes, static):
    from keras_transformer.export.spec.float32 import float32_twin
    from keras_transformer.export.spec.functional import check_model, functional_spec
    from keras_transformer.export.tflite.signatures import static_signatures
    from keras_transformer.layers.ternary import frozen_twin
    from keras_transformer.tasks import LanguageModel

    check_model(model)
    if not isinstance(model, LanguageModel) or generation is False:
        spec = functional_spec(frozen_twin(float32_twin(model)), tolerance, probes, dynamic_axes)
        return static_signatures(spec, static) if static else spec
    from keras_transformer.export.spec.language import language_spec

    if probes is not None or dynamic_axes is not None or static is not None:
        raise ExportError("probes, dynamic_axes and static are for a model's forward pass: give generation=False too")
    return language_spec(frozen_twin(float32_twin(model)), tolerance, generation)


def export_spec(spec, directory, formats, metadata=None, progress=None, *, tokenizer=None, tokenizer_options=None):
    """Writes and proves a bundle of any signatures; `export` is this for the one signature of a Functional model.

    Args:
        spec: an `ExportSpec` whose probes hold the reference outputs.
        directory: path of the bundle.
        formats: names of the formats.
        metadata: dict to keep in the manifest.
        progress: called with lines of text, or None.
        tokenizer, tokenizer_options: see `export`.

    Returns:
        A `Report`.

    Raises:
        ExportError: any of those that `export` names.
    """
    from keras_transformer.export.spec.traced import TracedModule

    formats = all_formats.check_formats(formats)
    target = bundle.check_target(directory)
    say = progress or (lambda line: None)
    spec = spec.only(formats)
    with bundle.replacing(target) as work:
        traced = TracedModule(spec)
        manifest = bundle.new_manifest(spec, metadata)
        if tokenizer is not None:
            tokenizers.write_tokenizer(work, manifest, tokenizer, tokenizer_options)
        artifacts = {name: _write(name, traced, spec, work, manifest, say) for name in _with_sources(formats, spec)}
        artifacts = {name: artifacts[name] for name in formats}
        if spec.quantization:
            artifacts = {name: _quantize(each, spec, work, manifest, say) for name, each in artifacts.items()}
        _finish(work, manifest, spec, formats, target.name)
        for artifact in artifacts.values():
            artifact.path = str(target / artifact.path)
    return Report(str(target), artifacts, spec.quantization.tolerance if spec.quantization else spec.tolerance)


def _write(name, traced, spec, work, manifest, say):
    """Writes and verifies one format; returns its `Artifact`."""
    start = time.perf_counter()
    say(f"writing {name}")
    before = _bytes(work)
    files = all_formats.writer(name).write(traced, spec, work)
    size = _bytes(work) - before
    manifest["artifacts"][name] = {"signatures": files, "bytes": size}
    probes = {key: spec.signatures[key].probes for key in spec.names(name)}
    say(f"verifying {name}")
    times = {}
    with explaining(spec.signatures, traced.exported_variables):
        parity = verify.verify_format(work, name, probes, spec.tolerance, manifest, times)
    manifest["artifacts"][name] |= {"parity": [vars(each) for each in parity], "milliseconds": times}
    count = sum(len(each) for each in probes.values())
    path = next(iter(files.values()))
    artifact = Artifact(name, path, size, time.perf_counter() - start, parity, count)
    say(f"verified {name}: {artifact.ratio:.1e} of the scale, {artifact.seconds:.1f} s")
    return artifact


def _quantize(artifact, spec, work, manifest, say):
    from keras_transformer.export.quantization.quantizing import quantize_artifact

    say(f"quantizing {artifact.format}")
    artifact = quantize_artifact(artifact, spec, work, manifest, lambda: _bytes(work))
    say(f"quantized {artifact.format}: {artifact.size / artifact.float_size:.2f} of the size")
    return artifact


def _with_sources(formats, spec):
    """The formats, and the SavedModel that TFLite is converted from, unless it needs one of its own."""
    if "tflite" not in formats or "saved_model" in formats or spec.names("tflite") != spec.names("saved_model"):
        return formats
    return ["saved_model", *formats]


def _bytes(directory):
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _finish(work, manifest, spec, formats, title):
    """Removes what was only a step on the way, keeps the probes, writes report and manifest."""
    import shutil

    for name in set(manifest["artifacts"]) - set(formats):
        for path in set(manifest["artifacts"].pop(name)["signatures"].values()):
            shutil.rmtree(work / path)
    probes = {key: signature.probes for key, signature in spec.signatures.items()}
    write_probes(work, probes, bundle.PROBE_BYTES)
    write_report(work, manifest, title)
    manifest["files"] = file_records(work)
    bundle.write_manifest(work, manifest)
