"""`export`: verified SavedModel, TFLite and ONNX files from a Keras model, in one call."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from keras_transformer.export.bundle import tokenizers, writing
from keras_transformer.export.bundle.metadata import check_metadata
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.report import Report, Reports
from keras_transformer.export.errors import ExportError, InvalidModelError, QuantizationError
from keras_transformer.export.formats import FORMATS, check_formats
from keras_transformer.export.quantization import kept, ternary
from keras_transformer.export.quantization.options import PRECISIONS, Quantization, precisions_of
from keras_transformer.export.reporting.progress import Progress
from keras_transformer.export.runtime.libraries import require_keras
from keras_transformer.export.targets import get_target
from keras_transformer.export.targets.fixed_shapes import (
    check_precisions,
    check_sizes,
    fixed_language_spec,
    fixed_spec,
    target_formats,
)
from keras_transformer.export.verification.quantized.evaluation import Evaluation
from keras_transformer.export.writing.bundle_writer import export_precisions, export_spec
from keras_transformer.export.writing.large_models import runs_float_files
from keras_transformer.utils.types import ArrayLike, Path

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.onnx.options import OnnxOptions
    from keras_transformer.export.spec.language import GenerationOptions
    from keras_transformer.export.targets.target import Target

__all__ = ["export", "export_spec"]


@overload
def export(
    model: keras.Model,
    directory: Path,
    formats: str | Iterable[str] = ...,
    *,
    tolerance: float | None = ...,
    probes: Sequence[Mapping[str, ArrayLike]] | None = ...,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = ...,
    metadata: dict[str, Any] | None = ...,
    tokenizer: Any = ...,
    tokenizer_options: dict[str, Any] | None = ...,
    generation: GenerationOptions | bool | None = ...,
    static: Mapping[str, int] | Sequence[Mapping[str, int]] | None = ...,
    onnx: OnnxOptions | None = ...,
    quantize: str | Quantization | None = ...,
    evaluation: Evaluation | None = ...,
    target: str | None = ...,
    progress: Progress = ...,
) -> Report: ...


@overload
def export(
    model: keras.Model,
    directory: Path,
    formats: str | Iterable[str] = ...,
    *,
    tolerance: float | None = ...,
    probes: Sequence[Mapping[str, ArrayLike]] | None = ...,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = ...,
    metadata: dict[str, Any] | None = ...,
    tokenizer: Any = ...,
    tokenizer_options: dict[str, Any] | None = ...,
    generation: GenerationOptions | bool | None = ...,
    static: Mapping[str, int] | Sequence[Mapping[str, int]] | None = ...,
    onnx: OnnxOptions | None = ...,
    quantize: list[str | Quantization] | tuple[str | Quantization, ...],
    evaluation: Evaluation | None = ...,
    target: str | None = ...,
    progress: Progress = ...,
) -> Reports: ...


def export(
    model: keras.Model,
    directory: Path,
    formats: str | Iterable[str] = tuple(FORMATS),
    *,
    tolerance: float | None = None,
    probes: Sequence[Mapping[str, ArrayLike]] | None = None,
    dynamic_axes: Mapping[str, Mapping[int, str]] | None = None,
    metadata: dict[str, Any] | None = None,
    tokenizer: Any = None,
    tokenizer_options: dict[str, Any] | None = None,
    generation: GenerationOptions | bool | None = None,
    static: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
    onnx: OnnxOptions | None = None,
    quantize: str | Quantization | list[str | Quantization] | tuple[str | Quantization, ...] | None = None,
    evaluation: Evaluation | None = None,
    target: str | None = None,
    progress: Progress = True,
) -> Report | Reports:
    """Writes a model as SavedModel, TFLite and ONNX, and verifies each file in its own runtime.

    Every artifact is run on several probes (batch 1 and 5, short and long, padded and not) and compared with the Keras
    model. The directory appears only when everything in it is verified; until then, and after any error, its old content
    stays. A model trained in mixed precision is exported as float32, and so is one on another Keras backend, through a
    process that runs Keras on TensorFlow. The model itself is not changed: other threads may use it meanwhile.

    Args:
        model: a built Functional or Sequential Keras model.
        directory: path of the bundle to write. An existing bundle is replaced; anything else is kept, and an error.
        formats: one or more keys of `FORMATS`: `"saved_model"`, `"tflite"`, `"onnx"`. All by default.
        tolerance: largest difference allowed, as a share of each output's largest absolute value. By default it follows
            from the model: each row of each output may differ by 6 times what rounding every operation differently moves
            it by. At least 0.1 for a model with ternary weights, which amplify differences: see `feedforward.BitDense`.
        probes: list of dicts: arrays by input name, or sizes by axis name. Generated by default.
        dynamic_axes: dict of input name to a dict of axis index to axis name; inputs that share a name share a size.
            By default `batch`, then `length` (or `height` and `width`).
        metadata: dict that describes the model, JSON values only: `model.metadata` of a loaded bundle, and part of the ONNX
            and TFLite files. "description" is a str, "class_names" a list of str, "inputs" a dict of input name to a dict
            of "description", "range", "mean" and "std" (the model takes `(value - mean) / std`); other keys are free.
        tokenizer: a tokenizer of `keras_transformer.text`, to go into the bundle, which then takes text; that of a
            `LanguageModel` by default.
        tokenizer_options: dict of how texts are encoded: "start", "end", "max_length"; see `Tokenizer.encode`. By default
            with the special tokens of the template of a Hugging Face tokenizer, and without any of another one.
        generation: `GenerationOptions` of a `LanguageModel`; False to write its one forward pass, `serve`, instead.
        static: dict of axis name to size, such as `{"batch": 1, "length": 128}`, or a list of such dicts: TFLite has a copy
            of the signature for these shapes, `serve_1x128`, which `load` uses by itself and phones' GPUs need. Those of a
            `LanguageModel` are set by `generation`.
        onnx: `OnnxOptions`: opset, and what the optimizer may use; None for files that every supported ONNX Runtime takes.
        quantize: "fp16", "int8", "int8_static", "weight_int8", "weight_int4", "gguf" for the integers and scales of the
            file that `from_gguf` read, "learned" for those of `model.quantized_weights`, or a `Quantization`; None for
            float32, with ternary weights packed in 2 bits. The float files are verified first, then replaced; those of a
            model of more than 2 GB are compared with its weights, but not run, if SavedModel is not asked for. A list of
            several, with "float32" for the float files, writes a bundle for each from one conversion, in folders of
            `directory` that are named after them: `directory/int8`, `directory/weight_int4`.
        evaluation: `Evaluation`: the loss that quantization may cause.
        target: a key of `TARGETS`, `"litert-gpu"`, `"xnnpack"`, `"qnn"`, `"openvino"`, `"coreml"` or `"webgpu"`: one file
            in the accelerator's format, of the fixed shapes of `static` (batch 1 unless given) and of the operators that
            it has. Where the accelerator's library is installed the file is run on it, or on its simulator, and compared
            with the CPU; `report.target` says what was taken, what falls back, and what was not run.
        progress: True for a bar on a terminal and lines elsewhere, on stderr; False for nothing; or a function, called
            with a line of text for each step.

    Returns:
        A `Report`: print it for a table. For several precisions `Reports`, a dict of them by precision.

    Raises:
        UnknownFormatError: a format does not exist.
        UnknownTargetError: a target does not exist.
        TargetError: a size that the target needs is missing, or it does not run the format or the quantization.
        InvalidModelError: the model is not a Keras model (a path, say), not functional or not built, or an argument does
            not fit it.
        MissingLibraryError: Keras or TensorFlow is not installed.
        InvalidBundleError: the directory contains something that is not a bundle.
        UnsupportedOpError: a format lacks an op; names the op and its layer.
        ParityError: an artifact differs from the Keras model by more than the tolerance.
        WeightError: a weight in a file is not the model's, or in a quantized file further from it than half a step.
        ConversionError: a converter failed for another reason.
        QuantizationError: the quantization is not supported, or costs more than the evaluation allows.
        OutOfSpaceError: the disk is full.

    Example:

    >>> import keras
    >>> from keras_transformer.export import export
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> report = export(model, "/tmp/keras_transformer_doctest", formats=["onnx"])
    >>> report["onnx"].ratio <= 1e-5
    True
    """
    require_keras("export")
    chosen = None if target is None else get_target(target)
    onnx = chosen.onnx if onnx is None and chosen is not None else onnx
    names = target_formats(chosen, formats) if chosen else check_formats(formats)
    several: list[Quantization | None] | None = None
    if isinstance(quantize, (list, tuple)):
        several = precisions_of(quantize)
        quantize = None
    place = writing.check_target(directory, PRECISIONS if several is not None else ())
    check_metadata(metadata)
    tokenizers.check_options(tokenizer_options)
    _check_model_type(model)
    several = several and [kept.with_source(each, model) for each in several]
    one = quantize if several is None else next(filter(None, several), None)
    quantization, tolerance = _quantization(model, one, evaluation, tolerance)
    precisions = several or [quantization]
    if chosen:
        check_precisions(chosen, precisions)
        if generation is False or not hasattr(model, "generation_spec"):
            check_sizes(chosen, model, dynamic_axes, static)
    keeps_weights = bool(kept.check_sources(precisions)) or getattr(model, "quantized_weights", None) is not None
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    if tokenizer_options is None and not hasattr(model, "generation_spec"):
        tokenizer_options = getattr(tokenizer, "template_options", None)
    text: dict[str, Any] = {"tokenizer": tokenizer, "tokenizer_options": tokenizer_options}
    shapes: dict[str, Any] = {"probes": probes, "dynamic_axes": dynamic_axes, "static": static}
    if not _is_on_tensorflow():
        from keras_transformer.export.spec.twins import merged_twin
        from keras_transformer.export.writing.other_backend import export_elsewhere

        options: dict[str, Any] = {"tolerance": tolerance, "metadata": metadata, "generation": generation, "onnx": onnx}
        options |= {
            "quantize": quantization if several is None else several,
            "evaluation": evaluation,
            "target": target,
            **shapes,
            **text,
        }
        return export_elsewhere(merged_twin(model), place, names, progress, **options)
    runs_floats = ternary.has_ternary_layers(model) or runs_float_files(model, names, precisions)
    model = _twin(model, streams=not runs_floats)
    kept.check_models(precisions, model, names)
    spec = _spec(model, generation, tolerance, **shapes, target=chosen)
    spec = dataclasses.replace(
        spec,
        onnx=onnx,
        quantization=quantization,
        evaluation=evaluation,
        runs_floats=runs_floats,
        folds_factors=not keeps_weights,
    )
    _add_text_signature(spec, names, model, **text)
    if several is not None:
        return export_precisions(spec, place, names, several, metadata, progress, **text)
    return export_spec(spec, place, names, metadata, progress, **text)


def _is_on_tensorflow() -> bool:
    import keras

    return keras.backend.backend() == "tensorflow"


def _check_model_type(model: Any) -> None:
    import keras

    if isinstance(model, (str, bytes, os.PathLike)):
        hint = "load it first, with keras_transformer.load_model"
        if pathlib.Path(os.fsdecode(model)).is_dir():
            hint = "load it first, with keras_transformer.checkpoints.from_huggingface for a checkpoint"
        raise InvalidModelError(f"model must be a Keras model, not the path '{os.fsdecode(model)}': {hint}")
    if not isinstance(model, keras.Model):
        raise InvalidModelError(f"model must be a Keras model, not {type(model).__name__}")


def _quantization(
    model: keras.Model, quantize: str | Quantization | None, evaluation: Evaluation | None, tolerance: float | None
) -> tuple[Quantization | None, float | None]:
    """The `Quantization` of an export, and its tolerance."""
    if tolerance is not None and (not isinstance(tolerance, (int, float)) or not 0 < tolerance < float("inf")):
        raise ExportError(f"tolerance must be a positive number. Received: {tolerance!r}")
    quantization = kept.with_source(Quantization.of(quantize), model)
    if ternary.has_ternary_layers(model):
        quantization = quantization or Quantization("ternary")
        tolerance = max(tolerance or 0.0, ternary.TOLERANCE)
    if evaluation is not None and not isinstance(evaluation, Evaluation):
        raise QuantizationError(f"evaluation must be an Evaluation. Received: {type(evaluation).__name__}")
    if evaluation is not None and quantization is None:
        raise QuantizationError("evaluation measures quantization: pass quantize too")
    return quantization, tolerance


def _twin(model: keras.Model, streams: bool = False) -> keras.Model:
    """The model as it is exported: adapters merged, float32, ternary kernels frozen. The argument is not changed.

    Args:
        model: the model.
        streams: bool. Whether weights in 16 bits are converted each time they are read, instead of copied.
    """
    from keras_transformer.export.spec.float32 import float32_twin, streamed_twin
    from keras_transformer.export.spec.functional import check_model
    from keras_transformer.export.spec.twins import merged_twin
    from keras_transformer.layers.ternary import frozen_twin

    check_model(model)
    twin = merged_twin(model)
    twin = streamed_twin(twin) if streams else frozen_twin(float32_twin(twin))
    if twin is not model and getattr(model, "tokenizer", None) is not None:
        twin.tokenizer = model.tokenizer  # It is not part of any config.
    return twin


def _spec(
    model: keras.Model,
    generation: GenerationOptions | bool | None,
    tolerance: float | None,
    probes: Any,
    dynamic_axes: Any,
    static: Any,
    target: Target | None = None,
) -> ExportSpec:
    from keras_transformer.export.spec.functional import functional_spec
    from keras_transformer.export.spec.static_signatures import static_signatures
    from keras_transformer.tasks import LanguageModel

    if not isinstance(model, LanguageModel) or generation is False:
        spec = functional_spec(model, tolerance, probes, dynamic_axes)
        if target is not None:
            return fixed_spec(spec, target, static)
        return static_signatures(spec, static) if static else spec
    from keras_transformer.export.spec.language import GenerationOptions, language_spec, static_length

    if probes is not None or dynamic_axes is not None or static is not None:
        raise ExportError("probes, dynamic_axes and static are for a model's forward pass: pass generation=False too")
    options = generation if isinstance(generation, GenerationOptions) else GenerationOptions()
    if target is not None:
        general = language_spec(model, tolerance, dataclasses.replace(options, whole_graph=False))
        return fixed_language_spec(general, target, static_length(model, options))
    return language_spec(model, tolerance, options)


def _add_text_signature(
    spec: ExportSpec, names: list[str], model: keras.Model, tokenizer: Any, tokenizer_options: dict[str, Any] | None
) -> None:
    """Adds the signature that takes text, where there is a tokenizer and a format for it."""
    if tokenizer is None or not any(FORMATS[name].takes_text for name in names):
        return
    from keras_transformer.export.spec.text_signatures import add_text_signature

    add_text_signature(spec, tokenizer, tokenizer_options, model if spec.generation else None)
