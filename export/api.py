"""`export`: verified SavedModel, TFLite and ONNX files from a Keras model, in one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, overload

from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.report import Report, Reports
from keras_transformer.export.deprecated import takes_former_arguments
from keras_transformer.export.errors import ExportError
from keras_transformer.export.formats import DEFAULT_FORMATS, FORMATS
from keras_transformer.export.options import ExportOptions
from keras_transformer.export.quantization.kept import check_models
from keras_transformer.export.quantization.precisions import Mode, Modes
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.reporting.progress import Progress
from keras_transformer.export.request import Request, check_is_layer, generates, request_of
from keras_transformer.export.runtime.libraries import require_keras
from keras_transformer.export.spec.class_names import known_metadata
from keras_transformer.export.spec.trained_integers import is_trained_with_integers, ordinary_model
from keras_transformer.export.targets.fixed_shapes import (
    fixed_language_spec,
    fixed_spec,
)
from keras_transformer.export.writing.bundle_writer import export_spec, write_bundles
from keras_transformer.utils.types import Arrays, Path

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.writing.preview import Preview
    from keras_transformer.text import Tokenizer

__all__ = ["export", "export_spec", "preview_export"]


@overload
def export(
    model: keras.layers.Layer,
    directory: Path,
    formats: str | Iterable[str] = ...,
    *,
    quantize: Mode | None = ...,
    tokenizer: Tokenizer | None = ...,
    probes: Sequence[Arrays] | None = ...,
    progress: Progress = ...,
    options: ExportOptions = ...,
) -> Report: ...


@overload
def export(
    model: keras.layers.Layer,
    directory: Path,
    formats: str | Iterable[str] = ...,
    *,
    quantize: Modes,
    tokenizer: Tokenizer | None = ...,
    probes: Sequence[Arrays] | None = ...,
    progress: Progress = ...,
    options: ExportOptions = ...,
) -> Reports: ...


@takes_former_arguments
def export(
    model: keras.layers.Layer,
    directory: Path,
    formats: str | Iterable[str] = DEFAULT_FORMATS,
    *,
    quantize: Mode | Modes | None = None,
    tokenizer: Tokenizer | None = None,
    probes: Sequence[Arrays] | None = None,
    progress: Progress = True,
    options: ExportOptions = ExportOptions(),
) -> Report | Reports:
    """Writes a model as SavedModel, TFLite and ONNX, and verifies each file in its own runtime.

    Every artifact is run on several probes (batches of 1 to 64, short and long, padded and not, of small and of large
    values) and compared with the Keras model. The directory appears only when everything in it is verified; until then,
    and after any error, its old content stays. A model trained in mixed precision is exported as float32, and so is one on
    another Keras backend, through a process that runs Keras on TensorFlow. The model itself is not changed: other threads
    may use it meanwhile.

    Args:
        model: any Keras model or layer: functional, sequential, subclassed, loaded from a `.keras` or `.h5` file, or a
            `keras.layers.TFSMLayer` of a SavedModel. A model that was called takes the shapes of that call, with any number
            of rows; `ExportOptions(inputs=...)` says others, and those of one that was not. A model of
            `training.quantization_aware(model, "full_int8")` is exported with `FullInt8` and the ranges that it has learned.
        directory: path of the bundle to write. An existing bundle is replaced; anything else is kept, and an error.
        formats: one or more keys of `FORMATS`: `"saved_model"`, `"tflite"`, `"onnx"`, all three by default; or `"openvino"`,
            which is made from the ONNX files.
        quantize: "fp16", "int8", "int8_static", "full_int8", "weight_int8", "weight_int4", "gguf", "learned", or a mode with
            options, such as `WeightInt4(block_size=64)`, `FullInt8(calibration)` or `Gguf(file)`; None for float32, with
            ternary weights packed in 2 bits. The float files are verified first, then replaced; those of a model of more
            than 2 GB are compared with its weights, but not run, if SavedModel is not asked for. A list of several, with
            "float32" for the float files, writes a bundle for each from one conversion, in folders of `directory` that are
            named after them: `directory/int8`, `directory/weight_int4`.
        tokenizer: a tokenizer of `keras_transformer.text`, to go into the bundle, which then takes text; that of a
            `LanguageModel` by default.
        probes: list of dicts: arrays by input name, or sizes by axis name. They come before generated ones; of those, what
            the model does not take is left out.
        progress: True for a bar on a terminal and lines elsewhere, on stderr; False for nothing; or a function, called
            with a line of text for each step.
        options: `ExportOptions`: shapes, generation, tolerance and evaluation, metadata, and the target.

    Returns:
        A `Report`: print it for a table. For several precisions `Reports`, a dict of them by precision.

    Raises:
        UnknownFormatError: a format does not exist.
        TargetError: a size that the target needs is missing, or it does not run the format or the quantization.
        InvalidModelError: the model is not a Keras model (a path, say), not functional or not built, or an argument does
            not fit it.
        MissingLibraryError: Keras, TensorFlow or the runtime of a format is not installed.
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
    form, request = _asked(model, directory, formats, quantize, tokenizer, probes, options)
    if not _is_on_tensorflow():
        return _export_elsewhere(form, request, progress)
    spec = _spec_of(form, request)
    reports = write_bundles(spec, request, progress)
    return reports if request.has_folders else next(iter(reports.values()))


def preview_export(
    model: keras.layers.Layer,
    directory: Path,
    formats: str | Iterable[str] = DEFAULT_FORMATS,
    *,
    quantize: Mode | Modes | None = None,
    options: ExportOptions = ExportOptions(),
) -> Preview:
    """Says what `export` would write, and what it would refuse, without converting anything.

    Args:
        model, directory, formats, quantize, options: as for `export`, on the TensorFlow backend.

    Returns:
        A `Preview`: print `plain(preview.parts())`.

    Raises:
        ExportError: any of those of `export` that come before it writes.

    Example:

    >>> import keras
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> preview_export(model, "/tmp/keras_transformer_doctest_nowhere", ["onnx"]).verdict().text
    'nothing was written: onnx would be'
    """
    from keras_transformer.export.writing.preview import preview

    form, request = _asked(model, directory, formats, quantize, None, None, options)
    return preview(_spec_of(form, request), request)


def _asked(
    model: keras.layers.Layer,
    directory: Path,
    formats: str | Iterable[str],
    quantize: Mode | Modes | None,
    tokenizer: Tokenizer | None,
    probes: Sequence[Arrays] | None,
    options: ExportOptions,
) -> tuple[keras.Model, Request]:
    """The model as a Functional one, and what is asked for of it, checked."""
    require_keras("export")
    check_is_layer(model)
    if is_trained_with_integers(model):
        model, quantize = ordinary_model(model, quantize)
    form, options = _functional(model, options)
    return form, request_of(form, directory, formats, quantize, tokenizer, probes, options)


def _spec_of(form: keras.Model, request: Request) -> ExportSpec:
    """The signatures of a model as a request has them, of the twin that is exported."""
    twin = export_twin(form, streams=not request.runs_floats)
    check_models(request.precisions, twin, request.formats)
    spec = model_spec(twin, request)
    if twin is not form:
        from keras_transformer.export.spec.origin import with_origin

        spec = with_origin(spec, form)
    return spec


def _functional(model: keras.layers.Layer, options: ExportOptions) -> tuple[keras.Model, ExportOptions]:
    """The model as a Functional one, and the options without the inputs that it was made for."""
    from keras_transformer.export.spec.method_signatures import form_of

    form = form_of(model, options.inputs, options.signatures or {})
    return form, dataclasses.replace(options, inputs=None)


def _is_on_tensorflow() -> bool:
    import keras

    return keras.backend.backend() == "tensorflow"


def _export_elsewhere(model: keras.Model, request: Request, progress: Progress) -> Report | Reports:
    from keras_transformer.export.spec.origin import origin_probes
    from keras_transformer.export.spec.twins import merged_twin
    from keras_transformer.export.writing.other_backend import export_elsewhere

    return export_elsewhere(merged_twin(model), request, progress, origin_probes(model))


def export_twin(model: keras.Model, streams: bool = False) -> keras.Model:
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
    if twin is not model and getattr(model, "preprocessor", None) is not None:
        twin.preprocessor = model.preprocessor  # Nor is the vocabulary of KerasHub.
    return twin


def model_spec(model: keras.Model, request: Request) -> ExportSpec:
    """The signatures of a model as a request has them, with their probes and the outputs of the model.

    Args:
        model: the model, as `export_twin` returns it.
        request: `Request`.

    Raises:
        InvalidModelError: the model is not functional, an argument does not fit it, or it fails on a probe.
        TargetError: a size that the target needs is missing.
    """
    options = request.options
    does_generate = generates(model, options)
    if does_generate:
        from keras_transformer.export.spec.keras_hub.language_model import language_model_of

        model = language_model_of(model, request.tokenizer)
    spec = _language_spec(model, request) if does_generate else _forward_spec(model, request)
    spec = dataclasses.replace(
        spec,
        onnx=options.onnx,
        evaluation=options.evaluation,
        runs_floats=request.runs_floats,
        folds_factors=request.folds_factors,
        metadata=known_metadata(model) | (options.metadata or {}),
        tokenizer=request.tokenizer,
        tokenizer_options=options.tokenizer_options,
    )
    if spec.tokenizer is not None and any(FORMATS[name].takes_text for name in request.formats):
        from keras_transformer.export.spec.language.text_signatures import add_text_signature

        add_text_signature(spec, model if spec.generation else None)
    return spec


def _forward_spec(model: keras.Model, request: Request) -> ExportSpec:
    from keras_transformer.export.spec.preprocessed.spec import forward_spec
    from keras_transformer.export.spec.static_signatures import static_signatures

    options = request.options
    spec = forward_spec(
        model, request.formats, options.tolerance, request.probes, options.dynamic_axes, options.has_one_length
    )
    if options.signatures:
        if request.target is not None:
            raise ExportError("a file for a target has one signature", Remedy.SIGNATURES)
        from keras_transformer.export.spec.method_signatures import with_methods

        spec = with_methods(spec, model, options.signatures)
    if request.target is not None:
        return fixed_spec(spec, request.target, options.static)
    return static_signatures(spec, options.static) if options.static else spec


def _language_spec(model: keras.Model, request: Request) -> ExportSpec:
    from keras_transformer.export.spec.language.spec import GenerationOptions, language_spec, static_length

    options, target = request.options, request.target
    forward = (request.probes, options.dynamic_axes, options.static, options.signatures)
    if any(each is not None for each in forward):
        raise ExportError(
            "probes, dynamic_axes, static and signatures are for a model's forward pass", Remedy.GENERATION
        )
    steps = options.generation if isinstance(options.generation, GenerationOptions) else GenerationOptions()
    if target is None:
        return language_spec(model, options.tolerance, steps)
    general = language_spec(model, options.tolerance, dataclasses.replace(steps, whole_graph=False))
    return fixed_language_spec(general, target, static_length(model, steps))
