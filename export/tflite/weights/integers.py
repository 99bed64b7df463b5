"""Weights that are whole numbers, as those of layers that Keras quantized: the converter makes floats of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.tflite.quantization.blocks import row_parameters
from keras_transformer.export.tflite.tree import schema
from keras_transformer.export.tflite.weights.weight import dequantize_for_others, find_weights

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT

_LEAST, _MOST = -128, 127


def store_integers(model: ModelT) -> None:
    """Stores whole numbers of 8 bits as such, a quarter of the size; runtimes convert them once, when they load a file.

    Args:
        model: `ModelT`, changed in place.
    """
    for weight in find_weights(model):
        values = weight.values
        if not _are_whole(values):
            continue
        model.buffers[weight.buffer].data = values.astype("int8").reshape(-1).view("uint8")
        for graph, index in weight.tensors:
            tensor = graph.tensors[index]
            tensor.type = schema().TensorType.INT8
            tensor.quantization = row_parameters(np.ones(1, "float32"))
            dequantize_for_others(graph, index, ())


def _are_whole(values: np.ndarray) -> bool:
    """Whether numbers are whole and have 8 bits, and are neither flags nor signs."""
    least, most = values.min(), values.max()
    return bool(least >= _LEAST and most <= _MOST and most - least > 2 and (np.round(values) == values).all())
