"""Rewrites of SavedModel graphs, mostly for ops without a TFLite counterpart; values change at most by rounding.

`x[:, None]` is a StridedSlice with a new-axis mask, which the converter lowers only for static shapes. It becomes a
StridedSlice without the mask and ExpandDims. `Abs` and `Sign` of integers become minima and maxima. For Keras's int8
layers, a `Squeeze` of a `Transpose` of unknown shape becomes a sum over the axes of size 1, and a product of int8 one of
floats.
"""

from __future__ import annotations

import collections
import contextlib
import pathlib
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.tflite.byte_scatters import without_byte_scatters
from keras_transformer.export.tflite.constants import FLOAT, INT8, INT32, INTEGERS, add_constant
from keras_transformer.export.tflite.function_outputs import rename_output
from keras_transformer.export.tflite.gradients import without_shared_erfc, without_slice_gradients
from keras_transformer.export.tflite.new_axes import without_new_axes
from keras_transformer.export.tflite.rolls import without_rolls
from keras_transformer.export.tflite.softplus import with_exact_softplus

if TYPE_CHECKING:
    import pathlib


_LOST = ("Relu", "Relu6")
_PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
_SCALES = ("BiasAdd", "AddV2", "Add", "Sub", "Mul", "RealDiv")
_LAYOUTS = ("Identity", "Reshape", "Transpose", "Squeeze", "ExpandDims")
_OF_WEIGHTS = frozenset(["ReadVariableOp", "Const", "Identity", "Cast", "AddV2", "ExpandDims", "Reshape"])


@contextlib.contextmanager
def rewritten(source: pathlib.Path) -> Iterator[pathlib.Path]:
    """Context manager that rewrites the graphs of a SavedModel.

    Args:
        source: `pathlib.Path` of a SavedModel. It is not changed.

    Yields:
        Path of the SavedModel to convert: a copy that shares the variables, or `source` if nothing changes.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((source / "saved_model.pb").read_bytes())
    functions = saved.meta_graphs[0].graph_def.library.function
    if not sum(rewrite(function) for function in functions for rewrite in _REWRITES):
        yield source
        return
    copy = source.with_name(f"{source.name}.rewritten")
    copy.mkdir()
    try:
        for part in source.iterdir():
            if part.name != "saved_model.pb":
                (copy / part.name).symlink_to(part.resolve())
        (copy / "saved_model.pb").write_bytes(saved.SerializeToString())
        yield copy
    finally:
        shutil.rmtree(copy)


def _without_integer_signs(function: Any) -> int:
    """Rewrites `Abs` as `max(x, -x)` and `Sign` as `min(max(x, -1), 1)` of integers; returns how many."""
    found = [node for node in function.node_def if node.op in ("Abs", "Sign") and node.attr["T"].type in INTEGERS]
    for node in found:
        source, kind = node.input[0], node.attr["T"].type
        if node.op == "Abs":
            node.op, other = "Maximum", function.node_def.add(name=f"{node.name}/negative", op="Neg", input=[source])
            operands = [source, f"{other.name}:y:0"]
        else:
            least, most = (add_constant(function, f"{node.name}/{end}", np.array(end), kind) for end in (-1, 1))
            node.op, other = "Minimum", function.node_def.add(name=f"{node.name}/raised", op="Maximum")
            other.input.extend([source, least])
            operands = [f"{other.name}:z:0", most]
        other.attr["T"].type = kind
        del node.input[:]
        node.input.extend(operands)
        rename_output(function, f"{node.name}:y:0", f"{node.name}:z:0")
    return len(found)


def _without_transposed_squeezes(function: Any) -> int:
    """Rewrites `Squeeze(Transpose(x))` as a sum over the squeezed axes; returns how many."""
    nodes = {node.name: node for node in function.node_def}
    count = 0
    for node in list(function.node_def):
        is_squeeze = node.op == "Squeeze" and "squeeze_dims" in node.attr
        axes = list(node.attr["squeeze_dims"].list.i) if is_squeeze else []
        source = nodes.get(node.input[0].split(":")[0]) if axes else None
        if source is None or source.op != "Transpose" or node.attr["T"].type != FLOAT:
            continue
        indices = add_constant(function, f"{node.name}/axes", np.array(axes))
        node.op = "Sum"
        node.input.append(indices)
        del node.attr["squeeze_dims"]
        node.attr["Tidx"].type = INT32
        node.attr["keep_dims"].b = False
        count += 1
    return count


def _without_byte_products(function: Any) -> int:
    """Rewrites products of int8 with int8 as products in float32, cast back; returns how many.

    Sums up to 2**24, such as those of 1,040 products, are exact; larger ones have seven correct digits.
    """
    found = [node for node in function.node_def if node.op == "BatchMatMulV3" and node.attr["Ta"].type == INT8]
    for node in found:
        operands = []
        for position, source in enumerate(node.input[:2]):
            cast = function.node_def.add(name=f"{node.name}/operand_{position}", op="Cast", input=[source])
            _set_types(cast, SrcT=node.attr["Ta" if position == 0 else "Tb"].type, DstT=FLOAT)
            operands.append(f"{cast.name}:y:0")
        product = function.node_def.add(name=f"{node.name}/product", op="BatchMatMulV2", input=operands)
        _set_types(product, T=FLOAT)
        for flag in ("adj_x", "adj_y"):
            product.attr[flag].b = node.attr[flag].b
        result = node.attr["Tout"].type
        node.op = "Cast"
        node.attr.clear()
        _set_types(node, SrcT=FLOAT, DstT=result)
        del node.input[:]
        node.input.append(f"{product.name}:output:0")
        rename_output(function, f"{node.name}:output:0", f"{node.name}:y:0")
    return len(found)


def _with_joined_factors(function: Any) -> int:
    """Rewrites `(x · rsqrt(m)) · γ` with a weight γ, as in an RMS norm, as `x · (rsqrt(m) · γ)`; returns how many.

    In signatures of fixed shapes only, the converter multiplies γ into the following kernels, which the file would then
    contain twice.
    """
    nodes = {node.name: node for node in function.node_def}
    reads = [name.split(":")[0] for node in function.node_def for name in node.input]
    readers = collections.Counter([*reads, *(name.split(":")[0] for name in function.ret.values())])
    count = 0
    for outer in function.node_def:
        weights = [name for name in outer.input if outer.op == "Mul" and _is_weight(nodes, name)]
        inner = _node(nodes, next(name for name in outer.input if name != weights[0])) if len(weights) == 1 else None
        if inner is None or inner.op != "Mul" or readers[inner.name] != 1:
            continue
        roots = [name for name in inner.input if (root := _node(nodes, name)) is not None and root.op == "Rsqrt"]
        if len(roots) == 1:
            (x,) = (name for name in inner.input if name != roots[0])
            inner.input[:] = [roots[0], weights[0]]
            outer.input[:] = [x, f"{inner.name}:z:0"]
            inner.attr.pop("_output_shapes", None)
            count += 1
    return count


def _without_lost_activations(function: Any) -> int:
    """Rewrites ReLUs of products as leaky ones of slope 0; returns how many. `products` turns them back.

    The converter takes a ReLU into a product of two computed tensors, whose operator has no activation in the file: it would
    be lost. It does not do so with a leaky one.
    """
    nodes = {node.name: node for node in function.node_def}
    activations = [node for node in function.node_def if node.op in _LOST and node.attr["T"].type == FLOAT]
    found = [node for node in activations if _is_product(nodes, node.input[0])]
    for node in found:
        leaky = node
        if node.op == "Relu6":
            leaky = function.node_def.add(name=f"{node.name}/leaky", input=[node.input[0]])
            node.op = "Minimum"
            most = add_constant(function, f"{node.name}/most", np.array(6.0), FLOAT)
            node.input[:] = [f"{leaky.name}:activations:0", most]
            node.attr.pop("_output_shapes", None)
            rename_output(function, f"{node.name}:activations:0", f"{node.name}:z:0")
        leaky.op = "LeakyRelu"
        _set_types(leaky, T=FLOAT)
        leaky.attr["alpha"].f = 0.0
    return len(found)


def _is_product(nodes: Any, name: str) -> bool:
    """Whether a tensor is a product of tensors, perhaps reshaped, or scaled and shifted by weights, which may be 1 and 0."""
    node = _node(nodes, name)
    if node is None:
        return False
    if node.op in _LAYOUTS:
        return _is_product(nodes, node.input[0])
    if node.op in _SCALES:
        others = [each for each in node.input if _node(nodes, each) is not None and not _is_weight(nodes, each)]
        return len(others) == 1 and _is_product(nodes, others[0])
    return node.op in _PRODUCTS


def _node(nodes: Any, name: str) -> Any:
    """The producer of a tensor; None for an argument of the function."""
    return nodes.get(name.split(":")[0])


def _is_weight(nodes: Any, name: str) -> bool:
    """Whether a tensor is computed from variables and constants only."""
    node = _node(nodes, name)
    if node is None or node.op not in _OF_WEIGHTS:
        return False
    return node.op in ("ReadVariableOp", "Const") or all(_is_weight(nodes, each) for each in node.input)


def _set_types(node: Any, **types: int) -> None:
    for name, kind in types.items():
        node.attr[name].type = kind


_REWRITES = (
    without_new_axes,
    _without_integer_signs,
    _without_transposed_squeezes,
    _without_byte_products,
    _with_joined_factors,
    _without_lost_activations,
    without_rolls,
    without_byte_scatters,
    without_shared_erfc,
    without_slice_gradients,
    with_exact_softplus,
)
