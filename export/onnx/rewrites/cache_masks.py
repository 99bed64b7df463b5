"""Which slots of a cache a bias of attention scores shows: proven from its comparisons."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from keras_transformer.export.onnx.passes.shapes.integers import Sizes
from keras_transformer.export.onnx.rewrites.cache_slots import CacheUpdate, Slots
from keras_transformer.export.onnx.rewrites.masks import LOWEST, hidden_by
from keras_transformer.export.onnx.rewrites.rule import scalar

EVERY_SLOT = -1
_NEGATED = {"Less": "GreaterOrEqual", "GreaterOrEqual": "Less", "Greater": "LessOrEqual", "LessOrEqual": "Greater"}
_MIRRORED = {"Less": "Greater", "LessOrEqual": "GreaterOrEqual"}
# Coefficients of the position of a query, of the slot of a key, and the constant.
_Terms = tuple[int, int, int]


class CausalMask:
    """A mask by which a query sees its own slot and those before it, perhaps within a window.

    Args:
        slots: `Slots` of the graph.
        update: the `CacheUpdate` with which the queries belong.
        num_slots: the number of slots of the cache.
    """

    def __init__(self, slots: Slots, update: CacheUpdate, num_slots: int | str) -> None:
        self._slots, self._update = slots, update
        self._queries: Sizes = [update.batch, 1, update.length, 1]
        self._keys: Sizes = [1, 1, 1, num_slots]

    def window(self, bias: ir.Value | None) -> int | None:
        """Returns how many slots a query sees with its own, `EVERY_SLOT` for all before it, None for other masks."""
        shown = _shown_by(bias)
        windows = [] if shown is None else [self._condition(each) for each in _conjuncts(shown)]
        if EVERY_SLOT not in windows or None in windows:
            return None
        return min((each for each in windows if each is not None and each != EVERY_SLOT), default=EVERY_SLOT)

    def _condition(self, value: ir.Value) -> int | None:
        """The window that a comparison shows, `EVERY_SLOT` if it is causal, None if it is another."""
        kind, operands = _comparison(value)
        if kind is None:
            return None
        node = operands[0].producer()
        if kind == "Less" and node is not None and node.op_type == "Abs":
            distance, width = self._terms(node.inputs[0]), scalar(operands[1])
            is_distance = distance in ((1, -1, 0), (-1, 1, 0))
            return width if is_distance and isinstance(width, int) and width > 0 else None
        if kind in _MIRRORED:
            kind, operands = _MIRRORED[kind], operands[::-1]
        first, second = (self._terms(each) for each in operands)
        if first is None or second is None:
            return None
        position, slot, number = (one - other for one, other in zip(first, second, strict=True))
        number -= kind == "Greater"  # Of integers: the difference and the number are at least 0.
        if (position, slot, number) == (1, -1, 0):
            return EVERY_SLOT
        return number + 1 if (position, slot) == (-1, 1) and number >= 0 else None

    def _terms(self, value: ir.Value | None) -> _Terms | None:
        """A sum of positions, slots and numbers, or None for other values."""
        number, node = scalar(value), None if value is None else value.producer()
        if isinstance(number, int):
            return 0, 0, number
        if self._slots.first(value, self._keys, 3) == 0:
            return 0, 1, 0
        if self._slots.first(value, self._queries, 2) == self._update.start:
            return 1, 0, 0
        if node is None or node.op_type not in ("Add", "Sub"):
            return None
        first, second = (self._terms(each) for each in node.inputs)
        if first is None or second is None:
            return None
        sign = -1 if node.op_type == "Sub" else 1
        position, slot, number = (one + sign * other for one, other in zip(first, second, strict=True))
        return position, slot, number


def _shown_by(bias: ir.Value | None) -> ir.Value | None:
    """The mask where a bias is 0, if it hides everything else; or None."""
    node = None if bias is None else bias.producer()
    found = hidden_by(node.inputs[0] if node is not None and node.op_type == "Expand" else bias)
    return found[1] if found is not None and found[0] <= LOWEST else None


def _conjuncts(mask: ir.Value) -> Iterator[ir.Value]:
    """The parts of a conjunction."""
    node = mask.producer()
    if node is None or node.op_type != "And":
        yield mask
        return
    for each in node.inputs:
        if each is not None:
            yield from _conjuncts(each)


def _comparison(value: ir.Value) -> tuple[str | None, list[ir.Value]]:
    """The kind of a comparison, and its operands."""
    node = value.producer()
    if node is not None and node.op_type == "Not" and node.inputs[0] is not None:
        kind, operands = _comparison(node.inputs[0])
        return _NEGATED.get(kind or ""), operands
    if node is None or node.op_type not in _NEGATED:
        return None, []
    return node.op_type, [each for each in node.inputs if each is not None]
