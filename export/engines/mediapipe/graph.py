"""The graph of a model with the inputs of MediaPipe Tasks: one image of levels, or the ids, mask and segments of a text."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.export.data.array_spec import ArraySpec
from keras_transformer.export.data.export_spec import ExportSpec, Probe, Signature
from keras_transformer.export.engines.inputs import check_image_inputs, check_text_inputs
from keras_transformer.export.engines.mediapipe.detector import check_detector, detector_outputs
from keras_transformer.export.engines.mediapipe.tasks import IDS, IMAGE, MASK, SEGMENTS, Task
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.graph.operation_origin import locator
from keras_transformer.export.spec import names
from keras_transformer.export.spec.functional import SERVE
from keras_transformer.export.spec.probes import fill_references
from keras_transformer.export.tflite.format import TFLITE
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    from keras_transformer.utils.types import Tensor


_OF_TEXT = {"token_ids": IDS, "padding_mask": MASK, "segment_ids": SEGMENTS}
_LEVELS = 256


def mediapipe_spec(
    model: keras.Model,
    task: Task,
    max_length: int,
    normalization: JsonObject,
    vocabulary_size: int,
    tolerance: float | None,
) -> ExportSpec:
    """Export spec of a model with one signature of fixed shapes, for one image or one text.

    Args:
        model: Functional model, float32, on the TensorFlow backend.
        task: `Task`.
        max_length: int: number of tokens of a text, with padding.
        normalization: dict of "mean" and "std" that the graph applies to the levels of an image.
        vocabulary_size: int: number of token ids, for the probes.
        tolerance: largest difference allowed, as a share of the output's scale; None for what rounding explains.

    Returns:
        An `ExportSpec`.

    Raises:
        InvalidModelError: the model has other inputs or outputs.
    """
    if task.is_image:
        inputs, take = _image_inputs(model), _image_reader(normalization)
        probes = [Probe({IMAGE: _levels(inputs[0].shape, label)}, f"image {label}") for label in (1, 2)]
    else:
        inputs, take = _text_inputs(model, max_length), _text_reader(model)
        probes = [
            _text(max_length, length, vocabulary_size) for length in sorted({1, (max_length + 1) // 2, max_length})
        ]
    signature = Signature(_function(model, task, take), inputs, probes, formats=(TFLITE.name,))
    fill_references(signature)
    return ExportSpec(
        {SERVE: signature}, tolerance, locator(model), tuple(model.variables), layers=tuple(layers_in_order(model))
    )


def check_inputs(model: keras.Model, task: Task) -> None:
    """Refuses a model that does not take what the task passes, or returns something else than the task answers.

    Raises:
        InvalidModelError: names the input or output.
    """
    if task.is_image:
        check_image_inputs(model, "MediaPipe passes one image")
    else:
        check_text_inputs(model, "MediaPipe", _OF_TEXT)
    if task.is_detector:
        return check_detector(model)
    outputs = keras.tree.flatten(model.output)
    if len(outputs) != 1 or len(outputs[0].shape) != 2 or outputs[0].shape[1] is None:
        shapes = ", ".join(str(each.shape) for each in outputs)
        raise InvalidModelError(f"MediaPipe takes one vector for each row; '{model.name}' returns {shapes}")


def _image_inputs(model: keras.Model) -> tuple[ArraySpec, ...]:
    shape = keras.tree.flatten(model.input)[0].shape
    return (ArraySpec(IMAGE, "float32", (1, *shape[1:]), (None,) * 4),)


def _text_inputs(model: keras.Model, max_length: int) -> tuple[ArraySpec, ...]:
    return tuple(ArraySpec(name, "int32", (1, max_length), (None, None)) for name in _OF_TEXT.values())


def _image_reader(normalization: JsonObject) -> Callable[[dict[str, Tensor]], list[Tensor]]:
    mean, std = (np.asarray(normalization.get(key, value), "float32") for key, value in (("mean", 0), ("std", 1)))

    def take(tensors: dict[str, Tensor]) -> list[Tensor]:
        levels = tensors[IMAGE]
        return [levels if not mean.any() and (std == 1).all() else (levels - mean) / std]

    return take


def _text_reader(model: keras.Model) -> Callable[[dict[str, Tensor]], list[Tensor]]:
    order = names.input_names(model)

    def take(tensors: dict[str, Tensor]) -> list[Tensor]:
        arrays = {name: tensors[label] for name, label in _OF_TEXT.items()}
        arrays["padding_mask"] = tf.greater(arrays["padding_mask"], 0)
        return [arrays[name] for name in order]

    return take


def _function(
    model: keras.Model, task: Task, take: Callable[[dict[str, Tensor]], list[Tensor]]
) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    structure = model.input
    if task.is_detector:
        return lambda tensors: detector_outputs(
            model(keras.tree.pack_sequence_as(structure, take(tensors)), training=False)
        )
    is_logits = task.is_classifier and names.output_names(model)[0] == "logits"

    def serve(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        (result,) = keras.tree.flatten(model(keras.tree.pack_sequence_as(structure, take(tensors)), training=False))
        return {task.output: tf.nn.softmax(result) if is_logits else result}

    return serve


def _levels(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, _LEVELS, shape).astype("float32")


def _text(max_length: int, length: int, vocabulary_size: int) -> Probe:
    random = np.random.default_rng(zlib.crc32(f"mediapipe {length}".encode()))
    mask = (np.arange(max_length) < length).astype("int32")[None]
    ids = random.integers(0, vocabulary_size, (1, max_length)).astype("int32") * mask
    return Probe({IDS: ids, MASK: mask, SEGMENTS: np.zeros_like(ids)}, f"{length} tokens")
