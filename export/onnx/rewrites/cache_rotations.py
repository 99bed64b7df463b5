"""Rotary positions of the queries and of the new keys of a cache: proven to be those of their slots."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.passes.shapes.integers import constant, known_sizes
from keras_transformer.export.onnx.rewrites.cache_slots import CacheUpdate, Slots
from keras_transformer.export.onnx.rewrites.rotary import cos_sin_angles
from keras_transformer.export.onnx.rewrites.rule import SWAP, OperatorMaker, node_of, scalar


class Rotation(NamedTuple):
    """Queries and keys before they are rotated.

    The `query` is `(B, T, N · H)` and the `key` `(B, T, K · H)`. Slot p turns them by `p · rates` `(R,)`, with cosines and
    sines times `factor`. Queries are multiplied by `scale` beside.
    """

    query: ir.Value
    key: ir.Value
    rates: np.ndarray
    factor: float
    interleaved: int
    scale: float

    def tables(self, op: OperatorMaker, count: ir.Value) -> list[ir.Value]:
        """Cosines and sines `(count, R)` of the first slots; the count is `(1,)`."""
        first, step = (op.Constant(value=ir.tensor(np.array(number, np.int32))) for number in (0, 1))
        axes = [op.Constant(value=ir.tensor(np.array([axis], np.int64))) for axis in (0, 1)]
        positions = op.Cast(op.Range(first, op.Squeeze(count, axes[0]), step), to=ir.DataType.FLOAT)
        angles = op.Mul(op.Unsqueeze(positions, axes[1]), op.Constant(value=ir.tensor(self.rates)))
        waves = [op.Cos(angles), op.Sin(angles)]
        if self.factor != 1:
            factor = op.Constant(value=ir.tensor(np.float32(self.factor)))
            waves = [op.Mul(wave, factor) for wave in waves]
        return waves


def rotation_of(slots: Slots, query: ir.Value, keys: CacheUpdate) -> Rotation | None:
    """Returns how the queries `(B, N, T, H)` of an attention and the new keys of its cache are rotated by their slots.

    None if they are not, or otherwise.
    """
    turned, scale = _rotated(query, is_turned=keys.length == 1)
    key, key_scale = _rotated(keys.update, is_turned=True)
    if turned is None or key is None or key_scale != 1:
        return None
    x, cos, sin, *_ = turned.inputs
    same = turned.inputs[1:] == key.inputs[1:] and len(turned.inputs) == 3
    options = [each.attributes.get_int("interleaved", 0) for each in (turned, key)]
    if not same or options[0] != options[1] or x is None or key.inputs[0] is None or len(known_sizes(x)) != 3:
        return None
    cos, sin = _unexpanded(cos), _unexpanded(sin)
    angles, factor = (None, None) if cos is None or sin is None else cos_sin_angles(cos, sin)
    rates = _rates(slots, angles, keys)
    if rates is None or factor is None:
        return None
    return Rotation(x, key.inputs[0], rates, factor, options[0], scale)


def _rotated(value: ir.Value | None, is_turned: bool) -> tuple[ir.Node | None, float]:
    """The rotation before moves to heads first, and the scale of its result."""
    scale = 1.0
    while value is not None and (node := value.producer()) is not None:
        if node.op_type == "RotaryEmbedding":
            return node, scale
        value = node.inputs[0]
        if node.op_type == "Mul":
            factors = [scalar(each) for each in node.inputs]
            found = [each for each in factors if each is not None and each > 0]
            if len(found) != 1:
                break
            scale, value = scale * found[0], node.inputs[factors.index(None)]
        elif node.op_type == "Transpose" and not is_turned:
            if list(node.attributes.get_ints("perm") or ()) != SWAP:
                break
            is_turned = True
        elif node.op_type != "Reshape" or not is_turned:
            break
    return None, scale


def _unexpanded(value: ir.Value | None) -> ir.Value | None:
    """A value before it is expanded to all rows."""
    if value is not None and value.producer() is not None and node_of(value).op_type == "Expand":
        return node_of(value).inputs[0]
    return value


def _rates(slots: Slots, angles: ir.Value | None, keys: CacheUpdate) -> np.ndarray | None:
    """The rates `(R,)` of angles that are the slots of new keys times the rates, or None."""
    node = None if angles is None else angles.producer()
    if node is None or node.op_type != "Mul":
        return None
    positions, rates = node.inputs if constant(node.inputs[0]) is None else node.inputs[::-1]
    array = constant(rates)
    if array is None or array.ndim != 1 or slots.first(positions, [keys.batch, keys.length, 1], 1) != keys.start:
        return None
    return array
