"""What ONNX files compute: how many numbers each product multiplies, and whether they are integers."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from keras_transformer.export.data.integer_share import Product
from keras_transformer.export.onnx.graph import name_of
from keras_transformer.export.onnx.quantization.calibrate import session_with_outputs
from keras_transformer.export.onnx.weights.files import read

_Shape: TypeAlias = "tuple[int, ...]"
# The number of multiplications from the shapes of inputs and result.
_KINDS: dict[str, Callable[[list[_Shape], _Shape], int]] = {
    "Conv": lambda inputs, result: math.prod(result) * math.prod(inputs[1][1:]),
    "ConvTranspose": lambda inputs, result: math.prod(inputs[0]) * math.prod(inputs[1][1:]),
    "Attention": lambda inputs, result: 2 * math.prod(inputs[0]) * inputs[1][-2],
    "GroupQueryAttention": lambda inputs, result: 2 * math.prod(result) * inputs[3][-2],
    **dict.fromkeys(
        ("MatMul", "Gemm", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits"),
        lambda inputs, result: math.prod(result) * inputs[0][-1],
    ),
    **dict.fromkeys(
        ("LSTM", "GRU", "RNN"), lambda inputs, result: math.prod(inputs[0][:2]) * sum(map(math.prod, inputs[1:3]))
    ),
}
_INTEGER_KINDS = ("MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits")
# Integers that ONNX Runtime computes with as floats.
_WIDE = (ir.DataType.INT16, ir.DataType.UINT16)
# What ONNX Runtime computes of floats alone.
_FLOAT_KINDS = frozenset(
    [
        *("LayerNormalization", "SkipLayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"),
        *("InstanceNormalization", "GroupNormalization", "BatchNormalization", "LpNormalization"),
        *("Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Erf", "Tanh", "Elu", "Selu", "Softplus", "Mish", "HardSwish"),
        *("Exp", "Log", "Sqrt", "Reciprocal", "Pow", "ReduceMean", "ReduceSum", "ReduceSumSquare", "LogSoftmax"),
    ]
)
# Of floats between integers, the kinds that ONNX Runtime fuses, and those that it fuses only where the result is integers.
_FUSED, _FUSED_WITH_RESULT = ("MatMul", "Gemm"), ("Conv",)


def products(
    path: pathlib.Path, locate: Callable[[str, str], str], arrays: Mapping[str, np.ndarray]
) -> Iterator[Product]:
    """Yields the products and convolutions of the main graph of a file, and what is computed of floats alone.

    Args:
        path: path of the file.
        locate: maps the type and the name of an operation to the name of its layer.
        arrays: inputs of the file, for which sizes are counted.
    """
    graph = read(path).graph
    nodes = [node for node in graph if node.op_type in _KINDS]
    values = [
        value for node in nodes for value in (*node.inputs[:3], *node.outputs) if value is not None and value.name
    ]
    computed = list(dict.fromkeys(name_of(each) for each in values if not each.is_initializer()))
    known = {name: np.shape(array) for name, array in arrays.items()}
    wanted = [name for name in computed if name not in known]
    results = session_with_outputs(path, wanted).run(wanted, dict(arrays)) if wanted else []
    shapes = known | {name: np.shape(each) for name, each in zip(wanted, results, strict=True)}
    for each in values:
        if each.shape is not None and each.is_initializer():
            shapes[name_of(each)] = tuple(int(size) for size in each.shape.numpy())
    for node in nodes:
        inputs = [shapes.get(name_of(value), ()) for value in node.inputs]
        result = next((shapes[name_of(value)] for value in node.outputs if value.name), ())
        yield Product(locate("", str(node.name)), _KINDS[node.op_type](inputs, result), _is_integer(node))
    for node in graph:
        if node.op_type in _FLOAT_KINDS and node.outputs[0].dtype in (None, ir.DataType.FLOAT):
            yield Product(locate("", str(node.name)), 0, False)


def _is_integer(node: ir.Node) -> bool:
    if node.op_type in _INTEGER_KINDS:
        return True
    makers = [None if value is None else value.producer() for value in node.inputs[:2]]
    has_integers = all(maker is not None and _dequantizes_8_bits(maker) for maker in makers)
    becomes_integers = {user.op_type for user, _ in node.outputs[0].uses()} == {"QuantizeLinear"}
    return has_integers and (node.op_type in _FUSED or (node.op_type in _FUSED_WITH_RESULT and becomes_integers))


def _dequantizes_8_bits(node: ir.Node) -> bool:
    """Whether a node reads integers for which a CPU has kernels."""
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    return node.op_type == "DequantizeLinear" and (zero is None or zero.dtype not in _WIDE)
