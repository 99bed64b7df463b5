"""Folders for transformers.js."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any

from keras_transformer.export.bundle import writing
from keras_transformer.export.bundle.manifest import write_manifest
from keras_transformer.export.bundle.metadata import check_metadata
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.data.report import Report
from keras_transformer.export.engines.files import check_tolerance, reported_tolerance
from keras_transformer.export.engines.onnx_files import write_onnx
from keras_transformer.export.engines.transformers_js import check
from keras_transformer.export.engines.transformers_js.language import LanguageGraphs
from keras_transformer.export.engines.transformers_js.one_graph import OneGraph
from keras_transformer.export.engines.transformers_js.packing import FOLDER, pack
from keras_transformer.export.engines.transformers_js.tasks import DTYPES, ENGINE, TASKS
from keras_transformer.export.errors import ExportError, QuantizationError
from keras_transformer.export.onnx import convert as onnx
from keras_transformer.export.quantization.options import Quantization
from keras_transformer.export.quantization.precisions import Mode, precision_of
from keras_transformer.export.spec.functional import check_model
from keras_transformer.export.verification import verify
from keras_transformer.export.writing.quantizing import quantize_in_place
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import keras

    from keras_transformer.audio import LogMel
    from keras_transformer.text import Tokenizer
    from keras_transformer.utils.types import Path
    from keras_transformer.vision import ImageProcessor


def write_transformers_js(
    model: keras.Model,
    directory: Path,
    task: str,
    *,
    tokenizer: Tokenizer | None = None,
    processor: ImageProcessor | LogMel | None = None,
    metadata: JsonObject | None = None,
    quantize: Mode | None = None,
    node_modules: Path | None = None,
    tolerance: float | None = None,
) -> Report:
    """Writes a model for transformers.js: `onnx/model.onnx`, `config.json`, and the files of the tokenizer or processor.

    The directory is also a bundle for `verify_bundle`. Its graphs are verified on probes; those of a language model also by
    greedy decoding. With `node_modules` the pipeline is run in Node, and its answer or its tokens are compared with those of
    the same files in Python.

    Args:
        model: Functional model: a backbone for "feature-extraction", `tasks.SequenceClassifier`, `tasks.ImageClassifier`,
            `tasks.MaskedLanguageModel`; a `tasks.LanguageModel` over a decoder, an encoder-decoder of texts, or
            `models.Whisper`, whose cache is keys and values of one shape in all layers.
        directory: path of the directory to write. An existing bundle is replaced; other directories are not.
        task: "feature-extraction", "text-classification", "fill-mask", "image-classification"; "text-generation";
            "translation", "summarization" or "text2text-generation"; "automatic-speech-recognition".
        tokenizer: for text: a `WordPiece`, `BytePair`, `Bytes` or `HuggingFaceTokenizer`; None for that of the model.
        processor: for images a `vision.ImageProcessor`, for recordings an `audio.LogMel`.
        metadata: dict that describes the model, see `export`; "class_names" become the labels.
        quantize: "int8" for the library's `dtype` "q8", "weight_int4" for "q4", "fp16", or a `Quantization` of such a mode;
            None for float32. The folder says which it is: the library loads it without being asked.
        node_modules: path of a folder of npm packages with `@huggingface/transformers`, to run the pipeline; None not to.
        tolerance: largest difference allowed, as a share of the output's scale; by default what rounding explains.

    Returns:
        A `Report`.

    Raises:
        ExportError: no such task, or an argument that does not fit it.
        InvalidModelError: the model has other inputs or outputs, or its tokenizer is of another kind.
        MissingLibraryError: `node_modules` lacks the package, or there is no Node.
        ParityError: a file does not compute what the model computes, or generates or answers something else.
        QuantizationError: the library has no name for the quantization, or it changes the model too much.
        ConversionError: the converter fails, or the pipeline does.
        UnsupportedOpError: ONNX lacks an op.
        InvalidBundleError: the directory exists and is not a bundle.

    Example:

    >>> from keras_transformer import models, tasks
    >>> from keras_transformer.text import WordPiece
    >>> tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat", "dog"])
    >>> model = tasks.SequenceClassifier(models.Encoder(models.Size(1, 8, 2, 16), 6), num_classes=2)
    >>> path = "/tmp/keras_transformer_doctest_js"
    >>> report = write_transformers_js(model, path, "text-classification", tokenizer=tokenizer)
    >>> report["onnx"].ratio <= 1e-5
    True
    """
    _check(model, task, metadata, tolerance, node_modules)
    quantization = precision_of(quantize, model)
    dtype, suffix = _dtype(quantization)
    target = writing.check_target(directory)
    arguments = (model, task, tokenizer, processor)
    graphs: Any = (
        LanguageGraphs(*arguments, tolerance) if TASKS[task].generates else OneGraph(*arguments, metadata or {})
    )
    spec = dataclasses.replace(graphs.spec(tolerance), metadata=metadata or {}, quantization=quantization)
    with writing.replacing(target) as work:
        manifest, artifact, spec = write_onnx(spec, work, rename=graphs.rename)
        graphs.check(_paths(work, manifest.artifact(onnx.ONNX)), tolerance)
        if quantization is not None:
            artifact, manifest = quantize_in_place(artifact, spec, work, manifest)
        record = manifest.artifact(onnx.ONNX)
        packed = pack(work, dict(record.signatures), graphs.names, suffix)
        record = dataclasses.replace(record, signatures=packed.files, size=writing.bytes_in(work / FOLDER))
        artifact = dataclasses.replace(artifact, path=record.paths[0], size=record.size)
        large = {"use_external_data_format": dict.fromkeys(packed.large, 1)} if packed.large else {}
        graphs.write_files(work, dtype, large)
        if node_modules is not None:
            graphs.check_pipeline(work, _paths(work, record), node_modules)
        write_manifest(work, manifest.with_artifact(onnx.ONNX, record))
        if packed.is_rewritten:
            verify.verify_bundle(work)
    artifact.path = str(target / artifact.path)
    return Report(str(target), {onnx.ONNX: artifact}, reported_tolerance(quantization, tolerance))


def _check(
    model: keras.Model, task: str, metadata: JsonObject | None, tolerance: float | None, node_modules: Path | None
) -> None:
    if task not in TASKS:
        raise ExportError(f"task must be one of {', '.join(TASKS)}. Received: {task!r}")
    check_model(model)
    check_metadata(metadata)
    check_tolerance(tolerance)
    if node_modules is not None:
        check.check_node(node_modules)


def _dtype(quantization: Quantization | None) -> tuple[str, str]:
    """The name of a precision in the library, and the end of the names of its files."""
    mode = None if quantization is None else quantization.mode
    if mode not in DTYPES:
        known = ", ".join(repr(each) for each in DTYPES if each)
        raise QuantizationError(f"{ENGINE} loads files of quantize={known}; not of {mode!r}")
    return DTYPES[mode]


def _paths(work: pathlib.Path, record: ArtifactRecord) -> dict[str, pathlib.Path]:
    return {signature: work / path for signature, path in record.signatures.items()}
