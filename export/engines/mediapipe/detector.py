"""Detections as MediaPipe's object detector takes them from a file, and as it answers."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_transformer.export.engines.mediapipe.tasks import CATEGORY, COUNT, LOCATION, SCORE
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.spec.functional import SERVE
from keras_transformer.export.tflite.tree import read_file
from keras_transformer.tasks import DetectionOutputs
from keras_transformer.vision import convert_boxes

if TYPE_CHECKING:
    import keras

    from keras_transformer.utils.types import Tensor

# Names of the outputs of the signature, and those that MediaPipe looks for.
OUTPUTS = {"location": LOCATION, "category": CATEGORY, "score": SCORE, "count": COUNT}
# MediaPipe answers in whole pixels.
_PIXELS = 1.0


def check_detector(model: keras.Model) -> None:
    """Refuses a model that returns something else than logits and boxes.

    Raises:
        InvalidModelError: names the outputs.
    """
    outputs = model.output
    if not isinstance(outputs, dict) or set(outputs) != {"logits", "boxes"}:
        found = ", ".join(outputs) if isinstance(outputs, dict) else ", ".join(each.name for each in model.outputs)
        raise InvalidModelError(
            "MediaPipe's object detector takes 'logits' and 'boxes', as of tasks.ObjectDetector;"
            f" '{model.name}' returns {found}"
        )


def detector_outputs(results: dict[str, Tensor]) -> dict[str, Tensor]:
    """The outputs of the graph: all queries as detections, the surest first, since MediaPipe takes the first ones.

    Args:
        results: "logits" `(1, Q, C + 1)` and "boxes" `(1, Q, 4)` of a detector.

    Returns:
        dict of "location" `(1, Q, 4)`: top, left, bottom and right inside the image, as shares of it; "category" and
        "score", `(1, Q)`; and "count", `(1,)`, which is Q: MediaPipe applies the threshold of the scores.
    """
    found = DetectionOutputs(dtype="float32")(results["logits"], results["boxes"])
    queries = found["scores"].shape[1]
    scores, order = tf.math.top_k(found["scores"][0], k=queries)
    corners = tf.gather(convert_boxes(found["boxes"][0], "xyxy", "yxyx"), order)
    return {
        # MediaPipe moves a box that begins outside of the image into it.
        "location": tf.clip_by_value(corners, 0.0, 1.0)[None],
        "category": tf.gather(tf.cast(found["labels"][0], tf.float32), order)[None],
        "score": scores[None],
        "count": tf.zeros_like(scores[:1]) + float(queries),
    }


def outputs_in_order(path: pathlib.Path) -> list[str]:
    """The names that MediaPipe looks for, in the order of the outputs of a file."""
    model = read_file(path)
    (signature,) = [each for each in model.signatureDefs if each.signatureKey.decode() == SERVE]
    names = {each.tensorIndex: OUTPUTS[each.name.decode()] for each in signature.outputs}
    return [names[index] for index in map(int, model.subgraphs[signature.subgraphIndex].outputs)]


def found_detections(result: Any, class_names: Sequence[str] = ()) -> np.ndarray:
    """An answer of MediaPipe as `(n, 6)`: left, top, width and height in pixels, category and score.

    MediaPipe joins detections whose boxes are equal in whole pixels into one of several categories.
    """
    rows = []
    for each in result.detections:
        box = each.bounding_box
        for found in each.categories:
            index = class_names.index(found.category_name) if class_names else found.index
            rows.append([box.origin_x, box.origin_y, box.width, box.height, index, found.score])
    return np.array(rows, "float32").reshape(-1, 6)


def expected_detections(
    outputs: dict[str, np.ndarray], height: int, width: int, class_names: Sequence[str] = ()
) -> np.ndarray:
    """What the graph computes in the same form; of categories with one name the first."""
    corners = outputs["location"][0][:, [1, 0, 3, 2]] * np.array([width, height, width, height], "float32")
    boxes = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
    categories = outputs["category"][0]
    if class_names:
        categories = np.array([class_names.index(class_names[int(each)]) for each in categories], "float32")
    return np.concatenate([boxes, categories[:, None], outputs["score"][0][:, None]], axis=1)


def detection_difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference of a score; infinite for other categories, or boxes that are more than a pixel away."""
    if found.shape != expected.shape:
        return float("inf")
    # Joined detections are not where their scores would put them.
    found, expected = (each[np.argsort(-each[:, 5], kind="stable")] for each in (found, expected))
    is_same = (found[:, 4] == expected[:, 4]).all() and (np.abs(found - expected)[:, :4] <= _PIXELS + 1e-3).all()
    return float(np.abs(found - expected)[:, 5].max(initial=0.0)) if is_same else float("inf")
