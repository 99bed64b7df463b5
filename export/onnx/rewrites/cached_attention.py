"""A rule that fuses attention over a key/value cache, with the update of the cache, into `GroupQueryAttention`.

The contrib operator of ONNX Runtime writes new keys and values into the cache, in place where a session is bound to it, and
reads the slots that are filled. The standard `Attention` reads all of them, behind a `ScatterND` for each.
"""

# The parameters of a pattern are its variables: those of a variant are others.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from onnxscript.rewriter import MatchContext

from keras_transformer.export.onnx.options import CONTRIB, OnnxOptions
from keras_transformer.export.onnx.passes.shapes.dims import Dims
from keras_transformer.export.onnx.passes.shapes.integers import known_sizes, sizes_of
from keras_transformer.export.onnx.rewrites.cache_masks import CausalMask
from keras_transformer.export.onnx.rewrites.cache_rotations import Rotation, rotation_of
from keras_transformer.export.onnx.rewrites.cache_slots import CacheUpdate, Slots
from keras_transformer.export.onnx.rewrites.rule import (
    SWAP,
    OperatorMaker,
    Rule,
    RuleSet,
    is_float,
    node_of,
    results_of,
)

# What the kernel asks for: of the width of a head, and of the rotated half of one.
_WIDTH, _HALF = 8, 8


class _Cached(NamedTuple):
    """What makes an `Attention` one over a cache."""

    keys: CacheUpdate
    values: CacheUpdate
    window: int


class _Inputs(NamedTuple):
    """The inputs of the operator, what the queries are multiplied by before, and the options that go with them."""

    values: list[ir.Value]
    scale: float
    options: dict[str, int]


class CachedAttention(Rule):
    """`Attention` over the slots up to that of each query, in a cache that the graph is handed and returns.

    The queries are a whole prompt from the first slot on, or one token at a slot of its own in each row. Further tokens of
    several rows need an input that ONNX Runtime has from version 1.32 on: those stay as they are. So do loops, in which the
    operator would copy the cache.
    """

    def pattern(self, op: OperatorMaker, query: ir.Value, key: ir.Value, value: ir.Value, bias: ir.Value) -> ir.Value:
        return op.Attention(query, key, value, bias, _outputs=["attended"])

    def check(
        self,
        context: MatchContext,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        bias: ir.Value,
        attended: ir.Value,
    ) -> bool:
        node, sizes = node_of(attended), sizes_of(query)
        if context.graph_or_function is not context.model.graph:
            return False
        if not {"scale"}.issuperset(node.attributes) or sizes is None or len(sizes) != 4 or not is_float(query):
            return False
        heads, width = sizes[1], sizes[3]
        if not isinstance(heads, int) or not isinstance(width, int) or width % _WIDTH:
            return False
        return self._found(query, key, value, bias) is not None

    def _found(self, query: ir.Value, key: ir.Value, value: ir.Value, bias: ir.Value) -> _Cached | None:
        slots, (batch, heads, length, width) = Slots(self.dims), known_sizes(query)
        keys, values = slots.update(key), slots.update(value)
        if keys is None or values is None or keys.start != values.start:
            return None
        is_alone = all(_is_own(present, each.past) for present, each in ((key, keys), (value, values)))
        (_, key_heads, num_slots, key_width) = sizes = known_sizes(keys.past)
        fits = sizes == known_sizes(values.past) and key_width == width and heads % key_heads == 0
        if not is_alone or not fits or [keys.batch, keys.length] != [batch, length]:
            return None
        if not isinstance(keys.start, int) and length != 1:
            return None
        window = CausalMask(slots, keys, num_slots).window(bias)
        return None if window is None else _Cached(keys, values, window)

    def rewrite(
        self,
        op: OperatorMaker,
        query: ir.Value,
        key: ir.Value,
        value: ir.Value,
        bias: ir.Value,
        attended: ir.Value,
    ) -> ir.Value | None:
        cached = self._found(query, key, value, bias)
        inputs = None if cached is None else self._inputs(op, query, cached)
        if cached is None or inputs is None:
            return None
        scale = node_of(attended).attributes.get_float("scale", known_sizes(query)[3] ** -0.5)
        made = op.GroupQueryAttention(
            *inputs.values,
            num_heads=known_sizes(query)[1],
            kv_num_heads=known_sizes(key)[1],
            local_window_size=cached.window,
            scale=scale * inputs.scale,
            **inputs.options,
            _domain=CONTRIB,
            _outputs=3,
        )
        found, *caches = results_of(made)
        found.type = ir.TensorType(ir.DataType.FLOAT)  # The inference of ONNX does not know the operator.
        for old, new in zip((key, value), caches, strict=True):
            new.name, new.type, new.shape = old.name, old.type, old.shape
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        heads = self.ints(op, 0, 0, known_sizes(query)[1], known_sizes(query)[3])
        return op.Transpose(op.Reshape(found, heads), perm=SWAP)

    def _inputs(self, op: OperatorMaker, query: ir.Value, cached: _Cached) -> _Inputs | None:
        (batch, heads, length, width), key_heads = known_sizes(query), known_sizes(cached.keys.past)[1]
        flat, flat_keys = (self.target(op, [batch, length, number * width]) for number in (heads, key_heads))
        filled, keys, values = self._filled(op, cached.keys), cached.keys, cached.values
        if filled is None or flat is None or flat_keys is None:
            return None
        rotation = self._rotation(query, keys)
        if rotation is None:
            new = op.Reshape(op.Transpose(query, perm=SWAP), flat), op.Reshape(keys.update, flat_keys)
            tables, scale, options = [], 1.0, {}
        else:
            new, tables, scale = rotation[:2], rotation.tables(op, filled[1]), rotation.scale
            options = {"do_rotary": 1, "rotary_interleaved": rotation.interleaved}
        caches = op.Reshape(values.update, flat_keys), keys.past, values.past
        return _Inputs([*new, *caches, *filled, *tables], scale, options)

    def _rotation(self, query: ir.Value, keys: CacheUpdate) -> Rotation | None:
        """The rotation by positions, if the kernel can do it."""
        found = rotation_of(Slots(self.dims), query, keys)
        width = known_sizes(query)[3]
        fits = found is not None and found.rates.size % _HALF == 0 and 2 * found.rates.size <= width
        return found if fits and width % (2 * _HALF) == 0 else None

    def _filled(self, op: OperatorMaker, update: CacheUpdate) -> tuple[ir.Value, ir.Value] | None:
        """The last filled slot of each row `(B,)`, and how many slots are filled in any, `(1,)`."""
        one = op.Constant(value=ir.tensor(np.ones(1, np.int32)))
        if not isinstance(update.start, int):
            last = op.Cast(update.start, to=ir.DataType.INT32)
            return last, op.Add(op.ReduceMax(last, keepdims=1), one)
        sizes = [self.dims.shape_tensor(op, [size]) for size in (update.length, update.batch)]
        if sizes[0] is None or sizes[1] is None:
            return None
        length = op.Cast(sizes[0], to=ir.DataType.INT32)
        return op.Expand(op.Sub(length, one), sizes[1]), length


def _is_own(present: ir.Value, past: ir.Value) -> bool:
    """Whether a cache is handed to the graph and returned by it, and read by one attention only."""
    readers = [node.op_type for node, _ in past.uses() if node.op_type != "Shape"]
    is_interface = past.is_graph_input() and present.is_graph_output()
    return is_interface and len(present.uses()) == len(readers) == 1


def cache_rules(dims: Dims, options: OnnxOptions) -> list[RuleSet]:
    """Returns the rule for attention over a cache, if its operator may be used."""
    return [RuleSet([CachedAttention(dims)])] if options.contrib_ops and options.cached_attention else []
