"""Quantized TFLite files from float ones: weights in 4, 8 or 16 bits, once in the file whichever signatures read them.

What XNNPACK has fast kernels for decides the form. 8 bits: one scale for each row of a product's weights, activations
quantized for each row as they come. 4 bits: a scale for each block of a row, and activations in 8 bits too, because a
product of floats with 4-bit weights has no kernel and takes six times as long. Tables are looked up row by row. Any other
large weight is made float again once, when the file is loaded.
"""

import numpy as np

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.block_quantize import by_channel, pack_nibbles
from keras_transformer.export.quantization.options import matches
from keras_transformer.export.tflite.blocks import positive_blocks
from keras_transformer.export.tflite.graph import add_buffer, graphs, read, schema, write
from keras_transformer.export.tflite.tables import use_lookups
from keras_transformer.export.tflite.weights import ROWS, find_weights, readers

# Where a quantized weight is read as it is; elsewhere it is made float first.
_DIRECT = {
    "fp16": (),
    "int8": ("FULLY_CONNECTED", "EMBEDDING_LOOKUP", "CONV_2D"),
    "int8_static": ("FULLY_CONNECTED", "EMBEDDING_LOOKUP", "CONV_2D"),
    "weight_int8": ("EMBEDDING_LOOKUP",),
    "weight_int4": ("FULLY_CONNECTED", "EMBEDDING_LOOKUP"),
}
_FEWEST_IN_BLOCK = 32


def quantize(spec, directory, files):
    """Replaces the TFLite file of a bundle that is being written by a quantized one.

    Args:
        spec: the `ExportSpec`, with its `quantization`.
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight, or the calibration does not fit.
    """
    for path in dict.fromkeys(files.values()):
        content = quantized((directory / path).read_bytes(), spec.quantization, spec.variables)
        (directory / path).write_bytes(content)


def quantized(content, quantization, variables=()):
    """The bytes of a quantized file.

    Args:
        content: bytes of a float .tflite file.
        quantization: `Quantization`.
        variables: the Keras variables that it was made from: `keep_float` is then about their paths, else about the
            names of tensors.

    Returns:
        bytes.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight, a block size without kernels, or a calibration
            that fits no signature.
    """
    mode = quantization.mode
    if mode == "weight_int4" and quantization.block_size < _FEWEST_IN_BLOCK:
        raise QuantizationError(f"tflite: blocks of {quantization.block_size} have no kernel: take 32, 64, 128 or 256")
    ranges = None
    if mode == "int8_static":
        from keras_transformer.export.tflite.calibrate import find_ranges

        ranges = find_ranges(content, quantization.calibration)
    model = read(content)
    if mode != "fp16":
        for graph in graphs(model):
            use_lookups(graph)
    weights = [
        each for each in find_weights(model, variables) if each.is_variable or not variables or _is_product(each)
    ]
    kept = matches({weight.name for weight in weights}, quantization.keep_float)
    chosen = [weight for weight in weights if weight.name not in kept]
    for weight in chosen:
        _quantize(model, weight, quantization)
    if ranges is not None:
        from keras_transformer.export.tflite.calibrate import use_ranges

        use_ranges(model, {weight.buffer for weight in chosen}, ranges)
    return write(model)


def _quantize(model, weight, quantization):
    """Replaces the values of one weight and everything that reads them."""
    kinds = {kind for graph, index in weight.tensors for kind in _kinds(graph, index)}
    if quantization.mode == "fp16":
        kind, data, details = "FLOAT16", weight.values.astype("float16"), lambda graph, name: None
    elif _fits_blocks(weight, quantization, kinds):
        kind, (data, details) = "INT4", _blocks(model, weight.values, quantization.block_size)
    else:
        kind, (data, details) = "INT8", _rows(weight.values)
    direct = set(_DIRECT[quantization.mode])
    if kind == "INT8":
        direct |= {"FULLY_CONNECTED", "CONV_2D"} if quantization.mode == "weight_int4" else set()
    model.buffers[weight.buffer].data = np.frombuffer(np.ascontiguousarray(data).tobytes(), "uint8")
    for graph, index in weight.tensors:
        tensor = graph.tensors[index]
        tensor.type = getattr(schema().TensorType, kind)
        tensor.quantization = details(graph, tensor.name.decode())
        _make_float(graph, index, direct)


def _kinds(graph, index):
    return {(graph.kind(operator), place) for operator, place in readers(graph, index)}


def _is_product(weight):
    """Whether all that a constant is for is a product, a lookup or a convolution."""
    places = {each for graph, index in weight.tensors for each in _kinds(graph, index)}
    return bool(places) and places <= set(ROWS.items())


def _fits_blocks(weight, quantization, kinds):
    """Whether a weight can be kept in blocks of 4 bits: nothing but products and lookups reads it, in whole blocks."""
    return (
        quantization.mode == "weight_int4"
        and weight.values.ndim == 2
        and weight.values.shape[1] % quantization.block_size == 0
        and kinds <= {(name, ROWS[name]) for name in _DIRECT["weight_int4"]}
    )


def _rows(values):
    """8 bits with one scale for each row; and a function that makes the details of a tensor that holds them."""
    matrix, scale = by_channel(values.reshape(len(values), -1).T)
    parameters = schema().QuantizationParametersT()
    parameters.scale = scale
    parameters.zeroPoint = np.zeros(len(scale), "int64")
    parameters.quantizedDimension = 0
    return matrix.T, lambda graph, name: parameters


def _blocks(model, values, block_size):
    """4 bits with one scale for each block of a row, scales in float16."""
    codes, scale = positive_blocks(values, block_size)
    packed = pack_nibbles((codes & 15).astype("uint8"))
    buffer = add_buffer(model, scale.astype("float16"))

    def details(graph, name):
        parameters = schema().QuantizationParametersT()
        parameters.detailsType = schema().QuantizationDetails.BlockwiseQuantization
        parameters.details = schema().BlockwiseQuantizationT()
        parameters.details.scales = graph.add_tensor(f"{name}/scales", "FLOAT16", scale.shape, buffer)
        parameters.details.zeroPoints = -1
        parameters.details.blockSize = block_size
        return parameters

    return packed, details


def _make_float(graph, index, direct):
    """Puts a `DEQUANTIZE` between a weight and those who cannot read it as it is; runtimes run it once."""
    others = [
        (operator, place)
        for operator, place in readers(graph, index)
        if graph.kind(operator) not in direct or place != ROWS[graph.kind(operator)]
    ]
    if not others:
        return
    tensor = graph.tensors[index]
    output = graph.add_tensor(f"{tensor.name.decode()}/float", "FLOAT32", tuple(map(int, tensor.shape)))
    for operator, place in others:
        operator.inputs = np.where(np.arange(len(operator.inputs)) == place, output, operator.inputs).astype("int32")
    graph.insert(0, "DEQUANTIZE", (index,), (output,))
