"""The graph of a model under the names and dtypes of transformers.js: texts as int64, images with channels first."""

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
from keras_transformer.export.engines.transformers_js.tasks import ENGINE, Task
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.export.graph.operation_origin import locator
from keras_transformer.export.onnx.format import ONNX
from keras_transformer.export.spec import names, vocabulary
from keras_transformer.export.spec.functional import SERVE
from keras_transformer.export.spec.probes import fill_references

if TYPE_CHECKING:
    from keras_transformer.utils.types import Tensor


IMAGES = "pixel_values"
OF_TEXT = {"token_ids": "input_ids", "padding_mask": "attention_mask", "segment_ids": "token_type_ids"}
_LEAST = 1e-37  # Below it, log would be infinite.


def transformers_js_spec(model: keras.Model, task: Task, tolerance: float | None) -> ExportSpec:
    """Export spec of a model with one signature of dynamic batch size and length.

    Args:
        model: Functional model, float32, on the TensorFlow backend.
        task: `Task`.
        tolerance: largest difference allowed, as a share of the output's scale; None for what rounding explains.

    Returns:
        An `ExportSpec`.
    """
    inputs = _image_inputs(model) if task.is_image else _text_inputs(model)
    probes = _image_probes(inputs[0]) if task.is_image else _text_probes(model, inputs)
    signature = Signature(_function(model, task), inputs, probes, formats=(ONNX.name,))
    fill_references(signature)
    return ExportSpec(
        {SERVE: signature}, tolerance, locator(model), tuple(model.variables), layers=tuple(layers_in_order(model))
    )


def check_inputs(model: keras.Model, task: Task) -> None:
    """Refuses a model that does not take what the pipeline passes, or returns something else.

    Raises:
        InvalidModelError: names the input or output.
    """
    if task.is_image:
        check_image_inputs(model, f"{ENGINE} passes images")
    else:
        check_text_inputs(model, ENGINE, OF_TEXT)
    outputs = keras.tree.flatten(model.output)
    if len(outputs) != 1 or len(outputs[0].shape) != task.rank:
        shapes = ", ".join(str(each.shape) for each in outputs)
        raise InvalidModelError(
            f"the task needs one output of rank {task.rank}, {task.output}; '{model.name}' returns {shapes}"
        )


def _image_inputs(model: keras.Model) -> tuple[ArraySpec, ...]:
    height, width, channels = keras.tree.flatten(model.input)[0].shape[1:]
    return (ArraySpec(IMAGES, "float32", (None, channels, height, width), ("batch", None, None, None)),)


def _text_inputs(model: keras.Model) -> tuple[ArraySpec, ...]:
    taken = [label for name, label in OF_TEXT.items() if name in names.input_names(model)]
    return tuple(ArraySpec(name, "int64", (None, None), ("batch", "length")) for name in taken)


def _function(model: keras.Model, task: Task) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    structure, order = model.input, names.input_names(model)
    is_probabilities = task.output == "logits" and names.output_names(model)[0] == "probabilities"

    def serve(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        if task.is_image:
            given = [tf.transpose(tensors[IMAGES], [0, 2, 3, 1])]
        else:
            given = [_as_taken(name, tensors[OF_TEXT[name]]) for name in order]
        (result,) = keras.tree.flatten(model(keras.tree.pack_sequence_as(structure, given), training=False))
        # The pipeline applies softmax.
        return {task.output: tf.math.log(tf.maximum(result, _LEAST)) if is_probabilities else result}

    return serve


def _as_taken(name: str, tensor: Tensor) -> Tensor:
    return tf.greater(tensor, 0) if name == "padding_mask" else tf.cast(tensor, "int32")


def _image_probes(spec: ArraySpec) -> list[Probe]:
    random = np.random.default_rng(0)
    return [
        Probe({IMAGES: random.normal(0, 1, (batch, *spec.shape[1:])).astype("float32")}, f"batch={batch}")
        for batch in (1, 3)
    ]


def _text_probes(model: keras.Model, inputs: tuple[ArraySpec, ...]) -> list[Probe]:
    most = vocabulary.longest_sequence(model) or 40
    limits = dict(
        zip(names.input_names(model), vocabulary.integer_limits(keras.tree.flatten(model.input)), strict=True)
    )
    return [_text(inputs, *sizes, limits["token_ids"] or 2) for sizes in ((1, 1), (3, min(9, most)), (2, most))]


def _text(inputs: tuple[ArraySpec, ...], batch: int, length: int, limit: int) -> Probe:
    """Texts of which the last one is padded."""
    random = np.random.default_rng(zlib.crc32(f"transformers.js {batch} {length}".encode()))
    mask = np.ones((batch, length), "int64")
    mask[-1, (length + 1) // 2 :] = 0
    arrays = {"input_ids": random.integers(0, limit, mask.shape), "attention_mask": mask}
    arrays["token_type_ids"] = np.zeros_like(mask)
    return Probe({spec.name: arrays[spec.name] for spec in inputs}, f"batch={batch}, length={length}")
