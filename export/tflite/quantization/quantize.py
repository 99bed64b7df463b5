"""Quantization of TFLite files: weights in 4, 8 or 16 bits, stored once for all signatures.

The formats are those with fast XNNPACK kernels. 8 bits: one scale for each row of the weights of a product, activations
quantized dynamically by row, in decoders with their outliers apart. 4 bits: one scale for each block of a row, and
activations in 8 bits too: a product of floats with 4-bit weights has no kernel and takes six times as long; the offsets of
the blocks are a product of their own. Tables have 8 bits, and are read by row lookups. Other large weights are dequantized
once, when the file is loaded.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.block_quantize import by_channel, by_offset_block, pack_nibbles
from keras_transformer.export.quantization.calibrated import batches_of
from keras_transformer.export.quantization.options import KEPT, Int8Static, matches
from keras_transformer.export.remedies import Remedy
from keras_transformer.export.tflite.graph import Graph, graphs
from keras_transformer.export.tflite.quantization.blocks import bfloat16, block_parameters, row_parameters
from keras_transformer.export.tflite.quantization.offsets import Offsets
from keras_transformer.export.tflite.quantization.outliers import separate_outliers
from keras_transformer.export.tflite.quantization.tables import use_lookups
from keras_transformer.export.tflite.tree import add_buffer, read, read_file, schema, write, write_file
from keras_transformer.export.tflite.weights.weight import ROWS, dequantize_for_others, find_weights, readers

if TYPE_CHECKING:
    import pathlib

    import keras
    from ai_edge_litert.schema_py_generated import ModelT

    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.quantization.options import Quantization
    from keras_transformer.export.tflite.weights.weight import Weight


# Operators that read quantized weights; for others, weights are dequantized first.
_DIRECT = {
    "fp16": (),
    "int8": ("FULLY_CONNECTED", "EMBEDDING_LOOKUP", "CONV_2D"),
    "int8_static": ("FULLY_CONNECTED", "EMBEDDING_LOOKUP", "CONV_2D"),
    "weight_int8": ("EMBEDDING_LOOKUP",),
    "weight_int4": ("FULLY_CONNECTED", "EMBEDDING_LOOKUP"),
}
_FEWEST_IN_BLOCK = 32


def quantize(spec: ExportSpec, directory: pathlib.Path, files: dict[str, str]) -> None:
    """Quantizes the TFLite file of a bundle that is being written.

    Args:
        spec: the `ExportSpec`, with its `quantization`.
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight, or the calibration does not fit.
    """
    for path in dict.fromkeys(files.values()):
        ranges = _find_ranges(spec.quantization, (directory / path).read_bytes)
        model = read_file(directory / path)
        quantize_tree(model, spec.quantization, spec.variables, ranges)
        write_file(model, directory / path)


def quantized(content: bytes, quantization: Quantization, variables: Sequence[keras.Variable] = ()) -> bytes:
    """Returns the bytes of a quantized file.

    Args:
        content: bytes of a float .tflite file.
        quantization, variables: as for `quantize_tree`.

    Raises:
        QuantizationError: as for `quantize_tree`, or a calibration that fits no signature.
    """
    ranges = _find_ranges(quantization, lambda: content)
    model = read(content)
    quantize_tree(model, quantization, variables, ranges)
    return write(model)


def _find_ranges(quantization: Quantization, content: Callable[[], bytes]) -> dict[int, Any] | None:
    """The ranges of activations, of the modes that need them."""
    if not isinstance(quantization, Int8Static):
        return None
    from keras_transformer.export.tflite.quantization.calibrate import find_ranges

    return find_ranges(content(), batches_of(quantization), quantization.ranges)


def quantize_tree(
    model: ModelT,
    quantization: Quantization,
    variables: Sequence[keras.Variable] = (),
    ranges: dict[int, Any] | None = None,
) -> None:
    """Quantizes the weights of an object tree, one at a time.

    Args:
        model: `ModelT`, changed in place. The content of a buffer may be an object with `__len__` and `__array__`, which is
            read when its weight is quantized.
        quantization: `Quantization`.
        variables: the Keras variables of the model: `keep_float` then matches their paths, otherwise the names of
            tensors.
        ranges: for "int8_static": the ranges of activations, see `calibrate.find_ranges`.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight, or a block size without kernels.
    """
    mode = quantization.mode
    if mode == "weight_int4" and quantization.weights_per_scale < _FEWEST_IN_BLOCK:
        raise QuantizationError(f"tflite: blocks of {quantization.weights_per_scale} have no kernel", Remedy.BLOCKS)
    if mode != "fp16":
        for graph in graphs(model):
            use_lookups(graph)
    weights = [
        each for each in find_weights(model, variables) if each.is_variable or not variables or _is_product(each)
    ]
    kept = matches({weight.name for weight in weights}, quantization.keep_float)
    chosen = [weight for weight in weights if weight.name not in kept]
    if mode in KEPT:
        _keep_blocks(model, chosen, quantization)
        return
    offsets = Offsets(model, quantization.weights_per_scale)
    for weight in chosen:
        _quantize(model, weight, quantization, offsets)
    if mode == "int8":
        separate_outliers(model)
    if ranges is not None:
        from keras_transformer.export.tflite.quantization.calibrate import use_ranges

        use_ranges(model, {weight.buffer for weight in chosen}, ranges, quantization.activation_bits)


def _keep_blocks(model: ModelT, weights: Sequence[Weight], quantization: Quantization) -> None:
    """Replaces the weights whose integers are known."""
    from keras_transformer.export.quantization.kept import blocks_of
    from keras_transformer.export.tflite.quantization.kept_blocks import KeptBlocks

    kept = KeptBlocks(model, blocks_of(quantization))
    for weight in weights:
        kept.keep(weight)
    separate_outliers(model)


def _quantize(model: Any, weight: Weight, quantization: Quantization, offsets: Offsets) -> None:
    """Replaces the values of one weight and adapts its consumers."""
    kinds = {kind for graph, index in weight.tensors for kind in _kinds(graph, index)}
    if quantization.mode == "fp16":
        kind, data, details = "FLOAT16", weight.values.astype("float16"), lambda graph, name: None
    elif _fits_blocks(weight, quantization, kinds):
        kind, (data, details, offset) = "INT4", _blocks(model, weight.values, quantization.weights_per_scale)
        offsets.add(weight.tensors, offset)
    else:
        kind, (data, details) = "INT8", _rows(weight.values)
    direct = set(_DIRECT[quantization.mode])
    if kind == "INT8":
        direct |= {"FULLY_CONNECTED", "CONV_2D"} if quantization.mode == "weight_int4" else set()
    model.buffers[weight.buffer].data = np.ascontiguousarray(data).reshape(-1).view("uint8")
    for graph, index in weight.tensors:
        tensor = graph.tensors[index]
        tensor.type = getattr(schema().TensorType, kind)
        tensor.quantization = details(graph, tensor.name.decode())
        dequantize_for_others(graph, index, direct)


def _kinds(graph: Graph, index: int) -> set[tuple[str, int]]:
    return {(graph.kind(operator), position) for operator, position in readers(graph, index)}


def _is_product(weight: Weight) -> bool:
    """Whether all consumers of a constant are products, lookups or convolutions."""
    positions = {each for graph, index in weight.tensors for each in _kinds(graph, index)}
    return bool(positions) and positions <= set(ROWS.items())


def _fits_blocks(weight: Weight, quantization: Quantization, kinds: set[tuple[str, int]]) -> bool:
    """Whether a weight can be stored in 4-bit blocks: only products read it, and its rows are whole blocks."""
    return (
        quantization.mode == "weight_int4"
        and len(weight.shape) == 2
        and weight.shape[1] % quantization.weights_per_scale == 0
        and kinds == {("FULLY_CONNECTED", ROWS["FULLY_CONNECTED"])}
    )


def _rows(values: np.ndarray) -> tuple[np.ndarray, Callable[[Graph, str], Any]]:
    """Values in 8 bits with one scale for each row, and a function that returns the quantization parameters."""
    matrix, scale = by_channel(values.reshape(len(values), -1).T)
    parameters = row_parameters(scale)
    return matrix.T, lambda graph, name: parameters


def _blocks(
    model: ModelT, values: np.ndarray, block_size: int
) -> tuple[np.ndarray, Callable[[Graph, str], Any], np.ndarray]:
    """Values in 4 bits with one float16 scale for each block of a row, a function as in `_rows`, and the offsets."""
    codes, scale, offset = by_offset_block(values, block_size, _kernel_scale)
    # From -8 to 7, in two's complement.
    packed = pack_nibbles(codes.reshape(len(codes), -1) ^ 8)
    buffer = add_buffer(model, scale.astype("float16"))

    def details(graph, name):
        return block_parameters(graph, name, scale.shape, buffer, block_size)

    return packed, details, offset


def _kernel_scale(scale: np.ndarray) -> np.ndarray:
    """Scales as the kernel reads them: the file has float16, which is coarser than bfloat16 for the smallest ones."""
    return bfloat16(scale).astype("float16").astype("float32")
