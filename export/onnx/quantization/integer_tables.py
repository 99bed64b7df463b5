"""Rows of tables of whole numbers in ONNX graphs, as floats."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.graph import NodeMaker, make_node
from keras_transformer.export.onnx.quantization.quantized_weights import Blocks, QuantizedWeights, shape_of

# Nodes before all others of a model, by the name of their result.
Top: TypeAlias = dict[str, ir.Node]


def once(
    top: Top, weights: QuantizedWeights, op: str, source: ir.Value, *arguments: Any, **attributes: Any
) -> ir.Value:
    """The result of an operator on weights, which the runtime computes when it loads.

    Args:
        top: nodes before all others of the model, by the name of their result; one is added unless it is there.
        weights: `QuantizedWeights`.
        op: name of the operator.
        source: its first input.
        arguments: values of its further inputs.
        attributes: its attributes.

    Returns:
        The result.
    """
    result = f"{source.name}/{op}"
    if result not in top:
        inputs = [weights.store(f"{result}/{number}", np.asarray(each)) for number, each in enumerate(arguments)]
        top[result] = make_node(op, (source, *inputs), result, result, **attributes)
    return top[result].outputs[0]


def offsets(top: Top, weights: QuantizedWeights, blocks: Blocks) -> ir.Value | None:
    """What is added to the codes of blocks around their middle: float32 `(blocks, N)`, or None.

    Minima are added to the codes from 0: the middle times the scale is the difference.
    """
    if blocks.minimum is None:
        return None if blocks.offset is None else as_float(top, weights, blocks.offset)
    scale = once(top, weights, "Transpose", as_float(top, weights, blocks.scale), perm=[1, 0])
    shift = once(top, weights, "Mul", scale, np.float32(blocks.middle))
    name = f"{blocks.minimum.name}/offset"
    if name not in top:
        top[name] = make_node("Add", (as_float(top, weights, blocks.minimum), shift), name, name)
    return top[name].outputs[0]


def as_float(top: Top, weights: QuantizedWeights, value: ir.Value) -> ir.Value:
    """An array as float32: the runtime casts it once, when it loads."""
    is_half = value.dtype == ir.DataType.FLOAT16
    return once(top, weights, "Cast", value, to=ir.DataType.FLOAT) if is_half else value


def look_up(
    make: NodeMaker,
    blocks: Blocks,
    shape: tuple[int, ...],
    indices: ir.Value | None,
    result: str,
    top: Top,
    weights: QuantizedWeights,
) -> ir.Value:
    """Rows of a table by their indices, of any shape; `shape` is that of a row, which may be a matrix."""
    flat = make("Reshape", indices, make.constant(np.array([-1]), "flat"))
    rows = dequantized_rows(make, blocks, top, weights, flat)
    if len(shape) > 1:
        rows = make("Reshape", rows, make.constant(np.array([-1, *shape]), "shapes"))
    width = make.constant(np.array(shape), "width")
    return make.into(result, "Reshape", rows, make("Concat", make("Shape", indices), width, axis=0))


def dequantized_rows(
    make: NodeMaker, blocks: Blocks, top: Top, weights: QuantizedWeights, indices: ir.Value | None
) -> ir.Value:
    """Rows `(n, K)` of a weight by blocks: those of `indices`, or all."""
    (count, width), number = blocks.shape, shape_of(blocks.codes)[1]

    def take(table: ir.Value) -> ir.Value:
        return table if indices is None else make("Gather", table, indices)

    # Blocks as whole rows are the same bytes under another shape.
    codes = take(once(top, weights, "Reshape", blocks.codes, np.array([count, -1])))
    if blocks.bits == 4:
        low = make("BitwiseAnd", codes, make.constant(np.uint8(15), "nibble"))
        high = make("BitShift", codes, make.constant(np.uint8(4), "shift"), direction="RIGHT")
        last = make.constant(np.array([-1]), "last")
        codes = make("Concat", make("Unsqueeze", low, last), make("Unsqueeze", high, last), axis=-1)
    codes = make("Reshape", codes, make.constant(np.array([-1, number, blocks.block]), "blocks"))
    middle = make.constant(np.float32(1 << blocks.bits - 1), "middle")
    scale = make("Unsqueeze", take(blocks.scale), make.constant(np.array([-1]), "last"))
    scale = make("Cast", scale, to=ir.DataType.FLOAT) if blocks.scale.dtype == ir.DataType.FLOAT16 else scale
    numbers = make("Mul", make("Sub", make("Cast", codes, to=ir.DataType.FLOAT), middle), scale)
    offset = offsets(top, weights, blocks)
    if offset is not None:
        by_row = take(once(top, weights, "Transpose", offset, perm=[1, 0]))
        numbers = make("Add", numbers, make("Unsqueeze", by_row, make.constant(np.array([-1]), "last")))
    rows = make("Reshape", numbers, make.constant(np.array([-1, number * blocks.block]), "rows"))
    if number * blocks.block == width:
        return rows
    bounds = [make.constant(np.array([each]), f"bound_{each}") for each in (0, width, 1)]
    return make("Slice", rows, *bounds)
