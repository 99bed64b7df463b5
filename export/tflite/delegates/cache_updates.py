"""Updates of key/value caches without a scatter, which delegates do not have.

The converter writes `scatter_update(cache, indices, new)` as `cache * (1 - scatter(ones)) + scatter(new)`. Where the
indices are every head of consecutive slots of the one row, tokens at known slots are joined with the rest of the cache, and
one token at a computed slot is chosen by a mask of the slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_transformer.export.tflite.graph import Graph
from keras_transformer.export.tflite.tree import indices, schema

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import OperatorT

_RANK, _SLOTS = 4, 2
_SHAPED = ("RESHAPE", "BROADCAST_TO", "CAST")


class Affine(NamedTuple):
    """A tensor of integers, `base + slope * number`.

    Args:
        base: array.
        slope: array of the same shape.
        source: index of the tensor of one element that holds the number; None if the slope is zero.
    """

    base: np.ndarray
    slope: np.ndarray
    source: int | None


def affine(graph: Graph, index: int) -> Affine | None:
    """A tensor of integers as a linear function of one number, or None if it is none."""
    value = graph.small_value(index)
    if value is not None:
        return Affine(value, np.zeros_like(value), None)
    maker = graph.makers.get(index)
    parts = None if maker is None else [affine(graph, each) for each in _data_inputs(graph, maker)]
    known = [each for each in parts or () if each is not None]
    found = _computed(graph, maker, known) if maker is not None and len(known) == len(parts or ()) else None
    if found is None and np.prod(graph.shape(index)) == 1 and graph.type(index) == "INT32":
        return Affine(np.zeros(graph.shape(index), "int32"), np.ones(graph.shape(index), "int32"), index)
    return found


def _data_inputs(graph: Graph, operator: OperatorT) -> tuple[int, ...]:
    inputs = indices(operator.inputs)
    return inputs[:1] if graph.kind(operator) in _SHAPED else inputs


def _computed(graph: Graph, operator: OperatorT, parts: list[Affine]) -> Affine | None:
    """The result of an operator, or None if it is not linear, or depends on several numbers."""
    kind, shape = graph.kind(operator), graph.shape(int(operator.outputs[0]))
    sources = {each.source for each in parts if each.source is not None}
    if len(sources) > 1 or not parts:
        return None
    source = next(iter(sources), None)
    bases, slopes = [each.base for each in parts], [each.slope for each in parts]
    if kind in ("RESHAPE", "CAST"):
        base, slope = bases[0].reshape(shape), slopes[0].reshape(shape)
    elif kind == "BROADCAST_TO":
        base, slope = np.broadcast_to(bases[0], shape), np.broadcast_to(slopes[0], shape)
    elif kind in ("ADD", "SUB"):
        sign = 1 if kind == "ADD" else -1
        base, slope = bases[0] + sign * bases[1], slopes[0] + sign * slopes[1]
    elif kind == "MUL" and any(each.source is None for each in parts):
        base = bases[0] * bases[1]
        slope = slopes[0] * bases[1] + slopes[1] * bases[0]
    elif kind == "PACK":
        axis = operator.builtinOptions.axis
        base, slope = np.stack(bases, axis), np.stack(slopes, axis)
    elif kind == "CONCATENATION":
        axis = operator.builtinOptions.axis
        base, slope = np.concatenate(bases, axis), np.concatenate(slopes, axis)
    else:
        return None
    return Affine(base, np.broadcast_to(slope, base.shape), source if slope.any() else None)


class Update(NamedTuple):
    """New rows of consecutive slots of a cache `(1, K, L, H)`.

    Args:
        cache: index of the tensor of the cache.
        new: index of the tensor of the new rows, `(T * K, H)`.
        shape: `(T, K, L, H)`.
        source: index of the tensor of one element, from which the first slot is counted; None if the slot is known.
        start: the first slot, less that number.
        output: index of the tensor of the updated cache.
    """

    cache: int
    new: int
    shape: tuple[int, int, int, int]
    source: int | None
    start: int
    output: int

    def emit_rows(self, graph: Graph) -> int:
        """Emits the new rows as `(1, K, T, H)`."""
        count, heads, _, width = self.shape
        if count == 1:
            return graph.emit_reshape(self.new, (1, heads, 1, width))
        rows = graph.emit_reshape(self.new, (1, count, heads, width))
        order = graph.constant(np.array([0, 2, 1, 3], "int32"), "order")
        shape = (1, heads, count, width)
        return graph.emit(
            "TRANSPOSE", (rows, order), ("FLOAT32", shape), schema().TransposeOptionsT(), like=self.output
        )


def find_update(graph: Graph, operator: OperatorT) -> Update | None:
    """The update of a cache whose last operator is given, or None."""
    found = _update(graph, operator)
    if found is None:
        return None
    cache, scatter = found
    places, new = indices(scatter.inputs)[:2]
    where = affine(graph, places)
    heads, length, width = graph.shape(cache)[1:]
    count = graph.shape(new)[0] // heads
    start = None if where is None else _start(where, heads, count)
    if where is None or start is None or (where.source is None and not 0 <= start <= length - count):
        return None
    return Update(cache, new, (count, heads, length, width), where.source, start, int(operator.outputs[0]))


def without_cache_scatters(graph: Graph, operator: OperatorT) -> bool:
    """Rewrites the last operator of an update `(1, K, L, H)`; the others are not read any more."""
    found = find_update(graph, operator)
    if found is None or (found.source is not None and found.shape[0] > 1):
        return False
    rows = found.emit_rows(graph)
    if found.source is None:
        _join(graph, found.cache, rows, found.start, found.output)
        return True
    graph.limits[found.source] = found.shape[2] - found.start
    _choose(graph, found.cache, rows, (found.source, found.start), found.output)
    return True


def _update(graph: Graph, operator: OperatorT) -> tuple[int, OperatorT] | None:
    """The cache, and the scatter of its new rows, given the last operator of an update."""
    if graph.kind(operator) != "ADD":
        return None
    for kept, added in (indices(operator.inputs), indices(operator.inputs)[::-1]):
        product, scatter = graph.makers.get(kept), graph.makers.get(added)
        if product is None or scatter is None or graph.kind(product) != "MUL":
            continue
        if graph.kind(scatter) != "SCATTER_ND" or graph.type(added) != "FLOAT32":
            continue
        for mask, cache in (indices(product.inputs), indices(product.inputs)[::-1]):
            if _is_rest(graph, mask, indices(scatter.inputs)[0]) and len(graph.shape(cache)) == _RANK:
                return (cache, scatter) if graph.shape(cache)[0] == 1 else None
    return None


def _is_rest(graph: Graph, mask: int, places: int) -> bool:
    """Whether a tensor is 1 except at the places of a scatter, where it is 0."""
    maker = graph.makers.get(mask)
    if maker is None or graph.kind(maker) != "SUB":
        return False
    one, scattered = (int(each) for each in indices(maker.inputs))
    scatter = graph.makers.get(scattered)
    if scatter is None or graph.kind(scatter) != "SCATTER_ND" or int(scatter.inputs[0]) != places:
        return False
    return all(_is_one(graph, each) for each in (one, int(scatter.inputs[1])))


def _is_one(graph: Graph, index: int) -> bool:
    """Whether every element of a tensor is known to be 1."""
    maker = graph.makers.get(index)
    if maker is not None and graph.kind(maker) == "BROADCAST_TO":
        index = int(maker.inputs[0])
    value = graph.small_value(index)
    return value is not None and bool((value == 1).all())


def _start(where: Affine, heads: int, count: int) -> int | None:
    """The slot of the first token, less the number that it depends on, if the places are all heads of consecutive slots."""
    if where.base.shape != (count * heads, 3) or count < 1:
        return None
    row, head, slot = where.base.T
    start = int(slot[0])
    if row.any() or (head != np.tile(np.arange(heads), count)).any():
        return None
    if (slot != start + np.repeat(np.arange(count), heads)).any() or where.slope[:, :_SLOTS].any():
        return None
    return start if where.source is None or (where.slope[:, _SLOTS] == 1).all() else None


def _join(graph: Graph, cache: int, rows: int, start: int, output: int) -> None:
    """`concatenate([cache[:, :, :start], rows, cache[:, :, start + T:]])`."""
    _, heads, length, width = graph.shape(cache)
    end = start + graph.shape(rows)[_SLOTS]
    pieces = [_slots(graph, cache, 0, start)] if start else []
    pieces += [rows] + ([_slots(graph, cache, end, length)] if end < length else [])
    if len(pieces) == 1:
        graph.emit_reshape(rows, (1, heads, length, width), output)
        return
    options = schema().ConcatenationOptionsT()
    options.axis = _SLOTS
    graph.emit("CONCATENATION", pieces, output, options)


def _slots(graph: Graph, cache: int, first: int, last: int) -> int:
    _, heads, _, width = graph.shape(cache)
    shape = (1, heads, last - first, width)
    bounds = [graph.constant(np.array(each, "int32"), "slice") for each in ((0, 0, first, 0), shape)]
    return graph.emit("SLICE", (cache, *bounds), (graph.type(cache), shape), schema().SliceOptionsT(), like=cache)


def _choose(graph: Graph, cache: int, rows: int, slot: tuple[int, int], output: int) -> None:
    """`cache * (1 - chosen) + rows * chosen`, where `chosen` is 1 at one slot."""
    _, heads, length, width = graph.shape(cache)
    chosen, rest = _masks(graph, slot, length, output)
    shape = graph.shape(cache)
    kept = graph.emit("MUL", (cache, rest), ("FLOAT32", shape), schema().MulOptionsT(), like=output)
    options = schema().BatchMatMulOptionsT()
    wide = graph.emit_reshape(chosen, (1, 1, length, 1))
    if heads > 1:
        ones = graph.constant(np.ones((1, heads, length, 1), "float32"), "ones")
        wide = graph.emit("MUL", (ones, wide), ("FLOAT32", (1, heads, length, 1)), schema().MulOptionsT(), like=output)
    new = graph.emit("BATCH_MATMUL", (wide, rows), ("FLOAT32", shape), options, like=output)
    graph.emit("ADD", (kept, new), output, schema().AddOptionsT())


def _masks(graph: Graph, slot: tuple[int, int], length: int, like: int) -> tuple[int, int]:
    """`(1, 1, L, 1)`, 1 at the slot and 0 elsewhere, and the opposite."""
    source, start = slot
    order = graph.constant(np.arange(length, dtype="int32").reshape(1, 1, length, 1) - np.int32(start), "order")
    number = graph.emit_reshape(source, (1, 1, 1, 1))
    shape = (1, 1, length, 1)
    equal = graph.emit("EQUAL", (order, number), ("BOOL", shape), schema().EqualOptionsT(), like=like)
    chosen = graph.emit_cast(equal, "FLOAT32")
    one = graph.constant(np.ones((), "float32"), "one")
    rest = graph.emit("SUB", (one, chosen), ("FLOAT32", shape), schema().SubOptionsT(), like=like)
    return chosen, rest
