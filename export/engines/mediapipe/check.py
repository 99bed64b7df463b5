"""Files in MediaPipe's own tasks, compared with the graph of the model."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.engines.mediapipe.detector import (
    detection_difference,
    expected_detections,
    found_detections,
)
from keras_transformer.export.engines.mediapipe.tasks import IDS, IMAGE, MASK, SEGMENTS, Task
from keras_transformer.export.errors import ConversionError, ParityError
from keras_transformer.export.loading.load import SERVE
from keras_transformer.export.tflite.runtime import TFLiteRuntime
from keras_transformer.utils.captured_stderr import captured_stderr
from keras_transformer.utils.errors import library_exceptions, one_line

if TYPE_CHECKING:
    from keras_transformer.utils.types import Path


NAME = "mediapipe"
# What MediaPipe's arithmetic before and after the graph may change, as a share of the scale.
TOLERANCE = 1e-5
_TEXTS = ("hello, world! is this the first text?", "a", "one two three " * 40)


def ask(
    path: Path, name: str, task: Task, examples: Sequence[object], class_names: Sequence[str] = ()
) -> list[np.ndarray]:
    """Returns what the task answers.

    Args:
        path: path of the file.
        name: name of the task, such as `"text_classifier"`.
        task: its `Task`.
        examples: texts, or uint8 arrays `(height, width, 3)`.
        class_names: the labels in the file, of a detector, which answers with them.

    Returns:
        List of float32 arrays: the scores in the order of the classes, or the vector, of each example; of a detector
        `(n, 6)`: left, top, width and height in pixels, category and score.

    Raises:
        ConversionError: MediaPipe cannot load or run the file.
    """
    with captured_stderr() as log:
        try:
            return _answers(path, name, task, examples, class_names)
        except library_exceptions() as error:
            raise ConversionError(NAME, one_line(error), log()) from error


def _answers(
    path: Path, name: str, task: Task, examples: Sequence[object], class_names: Sequence[str]
) -> list[np.ndarray]:
    base = importlib.import_module("mediapipe.tasks.python").BaseOptions(model_asset_path=str(path))
    package = importlib.import_module(f"mediapipe.tasks.python.{'vision' if task.is_image else 'text'}")
    kind = "".join(word.title() for word in name.split("_"))
    options = {"max_results": -1} if task.is_classifier or task.is_detector else {}
    if task.is_image:
        media = importlib.import_module("mediapipe")
        examples = [media.Image(image_format=media.ImageFormat.SRGB, data=each) for each in examples]
    with getattr(package, kind).create_from_options(getattr(package, f"{kind}Options")(base, **options)) as engine:
        if task.is_detector:
            return [found_detections(engine.detect(each), class_names) for each in examples]
        run = engine.classify if task.is_classifier else engine.embed
        return [_scores(run(each)) if task.is_classifier else _vector(run(each)) for each in examples]


def _scores(result: Any) -> np.ndarray:
    found = {each.index: each.score for each in result.classifications[0].categories}
    return np.array([found[index] for index in sorted(found)], "float32")


def _vector(result: Any) -> np.ndarray:
    return np.asarray(result.embeddings[0].embedding, "float32").reshape(-1)


def check_engine(
    path: pathlib.Path,
    name: str,
    task: Task,
    arrays: Sequence[Mapping[str, np.ndarray]],
    examples: Sequence[object],
    class_names: Sequence[str] = (),
) -> None:
    """Checks that MediaPipe answers what the graph computes of the same examples, prepared by the model's own tools.

    Args:
        path: path of the file.
        name: name of the task.
        task: its `Task`.
        arrays: the inputs of the graph for each example.
        examples: texts, or images.
        class_names: the labels in the file, of a detector.

    Raises:
        ParityError: they differ.
        ConversionError: MediaPipe cannot load or run the file.
    """
    runtime = TFLiteRuntime(str(path), SERVE, 1)
    answers = ask(path, name, task, examples, class_names)
    for number, (found, given) in enumerate(zip(answers, arrays, strict=True), 1):
        outputs = runtime(dict(given))
        label = f"{'image' if task.is_image else 'text'} {number} in MediaPipe"
        if task.is_detector:
            height, width = given[IMAGE].shape[1:3]
            _check_detections(found, expected_detections(outputs, height, width, class_names), label)
            continue
        expected = outputs[task.output][0]
        if found.shape != expected.shape:
            detail = f"is {found.shape}, the graph returns {expected.shape}"
            raise ParityError(NAME, task.output, label, np.nan, 1.0, TOLERANCE, detail)
        difference, scale = float(np.abs(found - expected).max()), float(np.abs(expected).max())
        if not difference <= TOLERANCE * scale:
            raise ParityError(NAME, task.output, label, difference, scale, TOLERANCE)


def _check_detections(found: np.ndarray, expected: np.ndarray, label: str) -> None:
    difference = detection_difference(found, expected)
    if not difference <= TOLERANCE:
        detail = f"{len(found)} detections, the graph returns {len(expected)}" if len(found) != len(expected) else ""
        raise ParityError(NAME, "detections", label, difference, 1.0, TOLERANCE, detail)


def text_examples(tokenizer: Any, max_length: int) -> tuple[list[dict[str, np.ndarray]], list[str]]:
    """Texts, and the inputs that the tokenizer of the model makes of each."""
    arrays = []
    for text in _TEXTS:
        ids = np.asarray(tokenizer.encode(text, start=True, end=True, max_length=max_length), "int32")
        padding = (0, max_length - len(ids))
        mask = np.pad(np.ones_like(ids), padding)[None]
        arrays.append({IDS: np.pad(ids, padding)[None], MASK: mask, SEGMENTS: np.zeros_like(mask)})
    return arrays, list(_TEXTS)


def image_examples(shape: Sequence[int]) -> tuple[list[dict[str, np.ndarray]], list[np.ndarray]]:
    """Images of the size of the model, and the inputs for each."""
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, shape).astype("uint8") for _ in range(2)]
    images.append(np.full(shape, 255, "uint8"))
    return [{IMAGE: each[None].astype("float32")} for each in images], images
