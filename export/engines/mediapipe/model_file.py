"""Classifiers, embedders and detectors as files for MediaPipe Tasks."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
import time
from typing import TYPE_CHECKING, Any

import keras

from keras_transformer.export.bundle.metadata import CLASS_NAMES, DESCRIPTION, INPUTS, check_input_names, check_metadata
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.report import Artifact, Report
from keras_transformer.export.engines.files import check_file_target, check_tolerance, reported_tolerance, write_tflite
from keras_transformer.export.engines.mediapipe.check import NAME, check_engine, image_examples, text_examples
from keras_transformer.export.engines.mediapipe.graph import check_inputs, mediapipe_spec
from keras_transformer.export.engines.mediapipe.metadata import mediapipe_schema, write_metadata
from keras_transformer.export.engines.mediapipe.tasks import TASKS, Task
from keras_transformer.export.errors import ExportError, InvalidModelError
from keras_transformer.export.quantization.kept import check_models
from keras_transformer.export.quantization.options import KEPT, Quantization
from keras_transformer.export.quantization.precisions import Mode, precision_of
from keras_transformer.export.spec import names, vocabulary
from keras_transformer.export.spec.float32 import float32_twin
from keras_transformer.export.spec.functional import SERVE, check_model
from keras_transformer.export.spec.twins import merged_twin
from keras_transformer.export.tflite import convert as tflite
from keras_transformer.export.writing.quantizing import quantize_in_place
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer
    from keras_transformer.utils.types import Path

_SUFFIX = ".tflite"
_LENGTH = 128
# Tokens that MediaPipe's WordPiece adds and falls back to.
_NEEDED = ("[CLS]", "[SEP]", "[UNK]")


def write_mediapipe(
    model: keras.Model,
    path: Path,
    task: str,
    *,
    tokenizer: Tokenizer | None = None,
    max_length: int | None = None,
    metadata: JsonObject | None = None,
    quantize: Mode | None = None,
    tolerance: float | None = None,
) -> Report:
    """Writes a classifier, an embedder or an object detector for MediaPipe Tasks: one TFLite file with its metadata.

    Labels and vocabulary are in the file.

    Image tasks pass the levels of an image, 0 to 255, in the size of the model. What `metadata` says of the input's "mean"
    and "std" is applied in the graph, for each channel. Text tasks pass ids, mask and segments of `max_length` tokens, by
    MediaPipe's WordPiece: it lowercases ASCII letters only and does not strip accents, so that texts with accents may have
    other ids than in Keras. Logits become probabilities. An object detector gives all its queries as detections, the surest
    first, with boxes inside the image; MediaPipe answers in whole pixels.

    The file is verified on probes in LiteRT, and then run by the task itself in MediaPipe on texts or images.

    Args:
        model: Functional model to one vector for each row: `tasks.ImageClassifier`, `tasks.SequenceClassifier`,
            `tasks.SentenceEmbedder` and others; or `tasks.ObjectDetector` of images of a fixed size, see
            `models.with_image_size`.
        path: path of the file to write, which ends in `.tflite`. An existing file is replaced.
        task: "image_classifier", "image_embedder", "object_detector", "text_classifier" or "text_embedder".
        tokenizer: for text: a `WordPiece`, or a `HuggingFaceTokenizer` of that kind, that lowercases text. None for that
            of the model.
        max_length: for text: number of tokens, [CLS] and [SEP] included; longer texts are cut. None for that of the model,
            but at most 128.
        metadata: dict that describes the model, see `export`: "class_names" become the labels, "description" that of the
            file, and "mean" and "std" of the input of images are applied in the graph.
        quantize: as for `export`: "fp16", "int8", ..., a `Quantization`, or None for float32.
        tolerance: largest difference allowed, as a share of the output's scale; by default what rounding explains.

    Returns:
        A `Report`.

    Raises:
        ExportError: no such task, or an argument that does not fit it.
        InvalidModelError: the model has other inputs or outputs, or MediaPipe does not support its tokenizer.
        InvalidBundleError: the file cannot be written.
        MissingLibraryError: MediaPipe is not installed.
        ParityError: the file does not compute what the model computes, or MediaPipe answers something else.
        ConversionError: the converter fails, or MediaPipe cannot run the file.
        UnsupportedOpError: TFLite lacks an op.

    Example:

    ```python
    report = write_mediapipe(model, "digits.tflite", "image_classifier", metadata={"class_names": names})
    print(report)
    ```
    """
    start = time.perf_counter()
    kind = _task(task)
    check_model(model)
    check_inputs(model, kind)
    target = check_file_target(path, _SUFFIX)
    mediapipe_schema()
    metadata = dict(metadata or {})
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    words = [] if kind.is_image else mediapipe_vocabulary(tokenizer)
    _check_arguments(model, kind, metadata, max_length, tolerance)
    quantization = precision_of(quantize, model)
    length = 0 if kind.is_image else max_length or min(vocabulary.longest_sequence(model) or _LENGTH, _LENGTH)
    model = float32_twin(merged_twin(model))
    check_models([quantization], model, [tflite.TFLITE])
    spec = mediapipe_spec(model, kind, length, _normalization(model, metadata), len(words), tolerance)
    spec = _completed(spec, quantization, metadata)
    shape = spec.signatures[SERVE].inputs[0].shape[1:]
    arrays, examples = image_examples(shape) if kind.is_image else text_examples(tokenizer, length)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
        work = pathlib.Path(folder)
        artifact = _write_graph(spec, work)
        file = work / tflite.FILE
        write_metadata(file, kind, model.name, metadata.get(DESCRIPTION, ""), metadata.get(CLASS_NAMES, []), words)
        check_engine(file, task, kind, arrays, examples, metadata.get(CLASS_NAMES, []))
        os.replace(file, target)
    seconds, size = time.perf_counter() - start, target.stat().st_size
    artifact = dataclasses.replace(artifact, format=NAME, path=str(target), size=size, seconds=seconds)
    return Report(str(target), {NAME: artifact}, reported_tolerance(quantization, tolerance))


def _task(name: str) -> Task:
    if name not in TASKS:
        raise ExportError(f"task must be one of {', '.join(TASKS)}. Received: {name!r}")
    return TASKS[name]


def _check_arguments(
    model: keras.Model, task: Task, metadata: JsonObject, max_length: int | None, tolerance: float | None
) -> None:
    check_metadata(metadata)
    check_input_names(metadata, names.input_names(model))
    classes = metadata.get(CLASS_NAMES)
    count = model.output["logits"].shape[-1] - 1 if task.is_detector else keras.tree.flatten(model.output)[0].shape[-1]
    if classes and (task.is_classifier or task.is_detector) and len(classes) != count:
        raise ExportError(f"metadata['class_names'] has {len(classes)} names; '{model.name}' has {count} classes")
    if classes and any("\n" in each or not each for each in classes):
        raise ExportError("metadata['class_names'] must have names of one line each")
    check_tolerance(tolerance)
    if max_length is None:
        return
    if task.is_image:
        raise ExportError("max_length is for text tasks")
    if isinstance(max_length, bool) or not isinstance(max_length, int) or max_length < 3:
        raise ExportError(f"max_length must be an int of at least 3, not {max_length!r}")
    most = vocabulary.longest_sequence(model)
    if most is not None and max_length > most:
        raise InvalidModelError(f"max_length is {max_length}; '{model.name}' is limited to {most} tokens")


def _normalization(model: keras.Model, metadata: JsonObject) -> JsonObject:
    """What the metadata says of the first input."""
    return metadata.get(INPUTS, {}).get(names.input_names(model)[0], {})


def _completed(spec: ExportSpec, quantization: Quantization | None, metadata: JsonObject) -> ExportSpec:
    folds_factors = quantization is None or quantization.mode not in KEPT
    own = {key: value for key, value in metadata.items() if key != INPUTS}  # The inputs of the file are others.
    return dataclasses.replace(spec, quantization=quantization, folds_factors=folds_factors, metadata=own)


def _write_graph(spec: ExportSpec, work: pathlib.Path) -> Artifact:
    """Writes and verifies `model.tflite`; returns its `Artifact`."""
    artifact, manifest = write_tflite(spec, work)
    return artifact if spec.quantization is None else quantize_in_place(artifact, spec, work, manifest)[0]


def mediapipe_vocabulary(tokenizer: Any) -> list[str]:
    """Returns the tokens in the order of their ids.

    MediaPipe lowercases ASCII letters, splits at whitespace, punctuation and Chinese characters, and adds [CLS] and [SEP].
    It does not strip accents: texts with accents or with capital letters outside ASCII may have other ids.

    Args:
        tokenizer: a `WordPiece`, or a `HuggingFaceTokenizer` of that kind, that lowercases text.

    Returns:
        List of str.

    Raises:
        InvalidModelError: it is another tokenizer, keeps case, or lacks a special token.

    Example:

    >>> from keras_transformer.text import WordPiece
    >>> mediapipe_vocabulary(WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat"]))[4]
    'cat'
    """
    if tokenizer is None:
        raise InvalidModelError("MediaPipe takes text: a text task needs a tokenizer")
    found, lowercase = _content(tokenizer)
    if not lowercase:
        raise InvalidModelError("MediaPipe lowercases text; the tokenizer keeps case")
    missing = [token for token in _NEEDED if token not in found]
    if missing:
        raise InvalidModelError(f"MediaPipe needs the tokens {', '.join(_NEEDED)}; the vocabulary lacks {missing[0]}")
    return found


def _content(tokenizer: Any) -> tuple[list[str], bool]:
    if tokenizer.kind == "wordpiece":
        return list(tokenizer.vocabulary), tokenizer.lowercase
    if tokenizer.kind == "hugging_face" and tokenizer.content["model"].get("type") == "WordPiece":
        ids = tokenizer.content["model"]["vocab"]
        normalizer = tokenizer.content.get("normalizer") or {}
        return sorted(ids, key=ids.get), bool(normalizer.get("lowercase"))
    raise InvalidModelError(f"MediaPipe reads WordPiece tokenizers, not {tokenizer.kind}")
