"""Lossless packing of ternary kernels of TFLite files in 2 bits a weight; they are dequantized when the file is loaded."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.export.quantization.ternary import is_ternary, pack_pairs
from keras_transformer.export.tflite.tree import read_file, schema, write_file
from keras_transformer.export.tflite.weights.weight import Weight, dequantize_for_others, find_weights

if TYPE_CHECKING:
    import pathlib

    import keras
    from ai_edge_litert.schema_py_generated import ModelT

    from keras_transformer.export.data.export_spec import ExportSpec


def quantize(spec: ExportSpec, directory: pathlib.Path, files: dict[str, str]) -> None:
    """Packs the ternary kernels in the TFLite file of a bundle that is being written.

    Args:
        spec: the `ExportSpec`.
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.
    """
    for path in dict.fromkeys(files.values()):
        model = read_file(directory / path)
        pack_tree(model, spec.variables)
        write_file(model, directory / path)


def pack_tree(model: ModelT, variables: Sequence[keras.Variable] = ()) -> None:
    """Packs the ternary kernels of an object tree.

    Args:
        model: `ModelT`, changed in place.
        variables: the Keras variables that it was made from.
    """
    for weight in find_weights(model, variables):
        if weight.is_variable and is_ternary(weight.values) and weight.values.size % 4 == 0:
            _pack(model, weight)


def _pack(model: ModelT, weight: Weight) -> None:
    codes = (weight.values.astype("int8") & 3).astype("uint8").reshape(-1)
    model.buffers[weight.buffer].data = np.ascontiguousarray(pack_pairs(codes))
    parameters = schema().QuantizationParametersT()
    parameters.scale = np.ones(1, "float32")
    parameters.zeroPoint = np.zeros(1, "int64")
    for graph, index in weight.tensors:
        tensor = graph.tensors[index]
        tensor.type = schema().TensorType.INT2
        tensor.quantization = parameters
        dequantize_for_others(graph, index, ())
