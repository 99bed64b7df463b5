"""Encoders and their heads as folders for transformers.js."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_transformer.export.bundle import writing
from keras_transformer.export.bundle.file_names import names_record
from keras_transformer.export.bundle.manifest import file_records
from keras_transformer.export.bundle.metadata import CLASS_NAMES, check_metadata
from keras_transformer.export.engines.files import check_tolerance
from keras_transformer.export.engines.transformers_js import check, files
from keras_transformer.export.engines.transformers_js.graph import check_inputs, transformers_js_spec
from keras_transformer.export.engines.transformers_js.tasks import TASKS, Task
from keras_transformer.export.errors import ExportError
from keras_transformer.export.onnx import convert as onnx
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.reporting.report import Artifact, Report
from keras_transformer.export.spec import names, vocabulary
from keras_transformer.export.spec.export_spec import ExportSpec
from keras_transformer.export.spec.float32 import float32_twin
from keras_transformer.export.spec.functional import check_model
from keras_transformer.export.spec.traced import TracedModule
from keras_transformer.export.spec.twins import merged_twin
from keras_transformer.export.verification import verify
from keras_transformer.export.verification.comparison import CEILING
from keras_transformer.export.verification.rounding import measure_rounding

if TYPE_CHECKING:
    from keras_transformer.utils.types import Path


FOLDER = "onnx"
_TEXT = "this is a text"


def write_transformers_js(
    model: Any,
    directory: Path,
    task: str,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    metadata: dict[str, Any] | None = None,
    node_modules: Path | None = None,
    tolerance: float | None = None,
) -> Report:
    """Writes a model for transformers.js: `onnx/model.onnx`, `config.json`, and the files of the tokenizer or processor.

    The directory is also a bundle for `verify_bundle`. Its graph is verified on probes and, with `node_modules`, the
    pipeline is run in Node and compared with the model.

    Args:
        model: Functional model: a backbone for "feature-extraction", `tasks.SequenceClassifier`, `tasks.ImageClassifier`,
            `tasks.MaskedLanguageModel`.
        directory: path of the directory to write. An existing bundle is replaced; other directories are not.
        task: "feature-extraction", "text-classification", "fill-mask" or "image-classification".
        tokenizer: for text: a `WordPiece` or a `HuggingFaceTokenizer`; None for that of the model.
        processor: for images: a `vision.ImageProcessor`.
        metadata: dict that describes the model, see `export`; "class_names" become the labels.
        node_modules: path of a folder of npm packages with `@huggingface/transformers`, to run the pipeline; None not to.
        tolerance: largest difference allowed, as a share of the output's scale; by default what rounding explains.

    Returns:
        A `Report`.

    Raises:
        ExportError: no such task, or an argument that does not fit it.
        InvalidModelError: the model has other inputs or outputs, or its tokenizer is of another kind.
        MissingLibraryError: `node_modules` lacks the package, or there is no Node.
        ParityError: the file does not compute what the model computes, or the pipeline answers something else.
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
    if task not in TASKS:
        raise ExportError(f"task must be one of {', '.join(TASKS)}. Received: {task!r}")
    kind = TASKS[task]
    check_model(model)
    check_inputs(model, kind)
    check_metadata(metadata)
    target = writing.check_target(directory)
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    class_names = _class_names(model, kind, metadata or {})
    _check_arguments(kind, tokenizer, processor, node_modules, tolerance)
    most = vocabulary.longest_sequence(model)
    model = float32_twin(merged_twin(model))
    spec = dataclasses.replace(transformers_js_spec(model, kind, tolerance), metadata=metadata or {})
    with writing.replacing(target) as work:
        manifest, artifact = _write(spec, work)
        files.write_json(work / "config.json", files.config_json(kind, class_names))
        if kind.is_image:
            processor.to_huggingface(work)
        else:
            files.write_json(work / "tokenizer.json", files.tokenizer_json(tokenizer))
            files.write_json(work / "tokenizer_config.json", files.tokenizer_config(tokenizer, most))
        if node_modules is not None:
            _check_pipeline(work, task, model, (tokenizer, processor, class_names), node_modules)
        manifest["files"] = file_records(work)
        writing.write_manifest(work, manifest)
    artifact.path = str(target / artifact.path)
    return Report(str(target), {onnx.NAME: artifact}, CEILING if tolerance is None else tolerance)


def _class_names(model: Any, task: Task, metadata: dict[str, Any]) -> list[str]:
    if task.rank != 2:
        return []
    count = keras.tree.flatten(model.output)[0].shape[-1]
    found = list(metadata.get(CLASS_NAMES) or [f"LABEL_{index}" for index in range(count)])
    if len(found) != count or len(set(found)) < count:
        raise ExportError(f"metadata['class_names'] must be {count} different names. Received: {found}")
    return found


def _check_arguments(task: Task, tokenizer: Any, processor: Any, node_modules: Any, tolerance: Any) -> None:
    check_tolerance(tolerance)
    if task.is_image and processor is None:
        raise ExportError("an image task needs a processor: a vision.ImageProcessor")
    if not task.is_image:
        files.tokenizer_json(tokenizer)  # Raises for unsupported kinds.
    if node_modules is not None:
        check.check_node(node_modules)


def _write(spec: ExportSpec, work: pathlib.Path) -> tuple[dict[str, Any], Artifact]:
    """Writes and verifies the graph; returns the manifest and the `Artifact`."""
    start = time.perf_counter()
    traced = TracedModule(spec)
    if spec.tolerance is None:
        measure_rounding(traced, spec)
    (work / FOLDER).mkdir()
    found = onnx.write(traced, spec, work / FOLDER)
    paths = {name: f"{FOLDER}/{path}" for name, path in found.items()}
    manifest = writing.new_manifest(spec)
    record: dict[str, Any] = {"signatures": paths, "names": names_record(spec, ONNX)}
    manifest["artifacts"][onnx.NAME] = record | {"bytes": writing.bytes_in(work)}
    probes = {name: signature.probes for name, signature in spec.signatures.items()}
    parity = verify.verify_format(work, onnx.NAME, probes, spec.tolerance, manifest)
    manifest["artifacts"][onnx.NAME]["parity"] = [vars(each) for each in parity]
    verify.write_probes(work, probes, writing.PROBE_BYTES)
    size, count = manifest["artifacts"][onnx.NAME]["bytes"], sum(map(len, probes.values()))
    return manifest, Artifact(onnx.NAME, next(iter(paths.values())), size, time.perf_counter() - start, parity, count)


def _check_pipeline(
    work: pathlib.Path, task: str, model: Any, tools: tuple[Any, Any, list[str]], node_modules: Path
) -> None:
    """Compares the answer of the pipeline with that of the model, prepared by its own tools."""
    tokenizer, processor, class_names = tools
    if TASKS[task].is_image:
        shape = keras.tree.flatten(model.input)[0].shape[1:]
        example: Any = np.random.default_rng(0).integers(0, 256, shape).astype("uint8")
        expected = np.asarray(model(processor(example), training=False))
    else:
        example = f"{_TEXT} {tokenizer.special_tokens['mask']}" if task == "fill-mask" else _TEXT
        expected = np.asarray(model(encoded(model, tokenizer, example), training=False))
    (answer,) = check.ask(work, task, [example], node_modules)
    if task == "feature-extraction":
        check.compare(answer, expected, "a text in transformers.js")
        return
    if names.output_names(model)[0] != "probabilities":
        expected = np.asarray(keras.ops.softmax(expected))
    if task == "fill-mask":
        ids = encoded(model, tokenizer, example)["token_ids"][0].tolist()
        expected = expected[:, ids.index(tokenizer.mask_id)]
        found = {each["token"]: each["score"] for each in answer}
        check.compare(
            np.array([found[index] for index in sorted(found)], "float32"), expected[0], "a text in transformers.js"
        )
        return
    check.compare(check.scores_of(answer, class_names), expected[0], "an example in transformers.js")


def encoded(model: Any, tokenizer: Any, text: str) -> dict[str, np.ndarray]:
    """The inputs of a model for a text between its special tokens."""
    ids = np.array([tokenizer.encode(text, start=True, end=True, allow_special_tokens=True)], "int32")
    arrays = {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool), "segment_ids": np.zeros_like(ids)}
    return {each.name: arrays[each.name] for each in model.inputs}
