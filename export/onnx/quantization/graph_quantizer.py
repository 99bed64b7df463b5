"""Quantization of one ONNX graph: products, convolutions, functions and tables are rewritten in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx_ir as ir

from keras_transformer.export.data.lazy_array import AnyArray
from keras_transformer.export.data.limits import SMALL
from keras_transformer.export.onnx.graph import (
    NodeMaker,
    all_graphs,
    attributes_of,
    drop_unread_constants,
    import_contrib,
    make_node,
    name_of,
    put_first,
)
from keras_transformer.export.onnx.quantization.calibrate import FUNCTIONS
from keras_transformer.export.onnx.quantization.integer_products import Layout, Products
from keras_transformer.export.onnx.quantization.integer_tables import Top, look_up
from keras_transformer.export.onnx.quantization.joined_products import Joiner
from keras_transformer.export.onnx.quantization.quantized_weights import QuantizedWeights
from keras_transformer.export.quantization import block_quantize
from keras_transformer.export.quantization.options import KEPT

if TYPE_CHECKING:
    from keras_transformer.export.quantization.options import Quantization


def is_candidate(array: AnyArray, least: int = SMALL) -> bool:
    """Whether a weight is large enough to quantize."""
    return array.dtype == np.float32 and array.ndim > 1 and array.size >= least


class Role(NamedTuple):
    """What a graph is in its bundle.

    `is_step` is whether it is one of a decoder, and `is_single` whether it reads one token of each row. The `layout` is that
    of the weights in 8 bits, and `matrices` are the names of its values of rank 2 where that is known.
    """

    is_step: bool
    is_single: bool
    layout: Layout
    matrices: frozenset[str] = frozenset()


class GraphQuantizer:
    """Quantizes one graph in place.

    Args:
        model: `onnx_ir.Model`, changed in place.
        weights: `QuantizedWeights` of its initializers.
        quantization: `Quantization`.
        groups: names of the weights that stay float, and of the tied ones.
        role: `Role` of the graph in its bundle.
        contrib_ops: bool, as for `quantize_files`.
        ranges: as for `quantize_files`.
    """

    def __init__(
        self,
        model: ir.Model,
        weights: QuantizedWeights,
        quantization: Quantization,
        groups: tuple[set[str], set[str]],
        role: Role,
        contrib_ops: bool,
        ranges: dict[str, tuple[float, float]] | None,
    ) -> None:
        self.model, self.graph, self.weights, self.quantization = model, model.graph, weights, quantization
        kept, self.tied = groups
        self.role = role
        self.top: Top = {}
        self.products = Products(
            self.weights, quantization, self.top, contrib_ops, ranges or {}, role.layout, role.matrices
        )
        names = [name for name in self.graph.initializers if is_candidate(weights.array(name))]
        self.candidates = {name for name in names if name not in kept}
        self.convolved: set[str] = set()

    def run(self) -> None:
        """Replaces the nodes of the graph, and its weights."""
        if self.quantization.mode == "fp16":
            self._store_in_float16()
        else:
            for number, graph in reversed(list(enumerate(all_graphs(self.graph)))):
                self.products.enter_graph(self.role.is_step or number > 0)
                self._rewrite(graph)
            if self.quantization.mode not in KEPT:
                self._store_the_rest_in_8_bits()
            if self.role.is_step:
                Joiner(self.graph, self.top).run(self.role.is_single)
        put_first(self.graph, self.top.values())
        drop_unread_constants(self.graph)
        import_contrib(self.model)

    def _store_in_float16(self) -> None:
        for name in sorted(self.candidates):
            self._compute(name, "Cast", (self._half(name),), to=ir.DataType.FLOAT)

    def _store_the_rest_in_8_bits(self) -> None:
        # A processor that multiplies integers to integers computes with other constants, such as positions, in floats.
        names = self.convolved if self.products.quantizes_results else self.candidates
        for name in sorted(names):
            if self.graph.initializers[name].uses():
                self._dequantize(name)

    def _dequantize(self, name: str) -> None:
        """Computes a weight from 8 bits, with a scale for each index of the first axis."""
        array = np.asarray(self.weights.array(name))
        q, scale = block_quantize.by_channel(array.reshape(len(array), -1).T)
        codes = self.weights.store(f"{name}.int8_whole", np.ascontiguousarray(q.T).reshape(array.shape))
        scales = self.weights.store(f"{name}.int8_whole.scale", scale)
        self._compute(name, "DequantizeLinear", (codes, scales, self.weights.zeros(scales)), axis=0)

    def _compute(self, name: str, op: str, inputs: tuple[ir.Value, ...], **attributes: Any) -> None:
        """Computes a weight at the top of the model instead of storing it."""
        old = self.graph.initializers.pop(name)
        self.top[name] = make_node(op, inputs, name, f"{name}/to_float", **attributes)
        old.replace_all_uses_with(self.top[name].outputs[0])

    def _half(self, name: str) -> ir.Value:
        """A weight in 16 bits."""
        return self.weights.store(f"{name}.fp16", np.asarray(self.weights.array(name)).astype("float16"))

    def _table_of_halves(self, name: str) -> ir.Value:
        """A table that is stored in 16 bits. Processors of integers look rows up in floats or in one scale."""
        result = f"{name}.fp16/to_float"
        if result not in self.top:
            half = self._half(name)
            self.top[result] = make_node("Cast", (half,), result, f"{name}/to_float", to=ir.DataType.FLOAT)
        return self.top[result].outputs[0]

    def _weight(self, value: ir.Value | None) -> tuple[str, bool] | None:
        """The name of a weight that may be quantized, and whether a value is the transposed one; None for other values."""
        node = None if value is None else value.producer()
        is_transposed = node is not None and node.op_type == "Transpose"
        source = node.inputs[0] if node is not None and is_transposed else value
        name = name_of(source)
        if name not in self.candidates or (is_transposed and len(self.weights.array(name).shape) != 2):
            return None
        return name, is_transposed

    def _rewrite(self, graph: ir.Graph) -> None:
        for node in list(graph):
            make = NodeMaker(node, self.weights.store)
            for rewrite in (self._product, self._convolution, self._function, self._table):
                if rewrite(node, make):
                    make.replace()
                    break
        for node in list(graph):
            result = node.outputs[0] if node.op_type == "Transpose" else None
            if result is not None and not result.uses() and not result.is_graph_output():
                graph.remove(node, safe=True)

    def _product(self, node: ir.Node, make: NodeMaker) -> bool:
        """Rewrites a product of activations and a weight; returns whether it was one."""
        if node.op_type not in ("MatMul", "Gemm"):
            return False
        options, weight = attributes_of(node), self._weight(node.inputs[1])
        if weight is None or options.get("transA"):
            return False
        name, is_transposed = weight
        if self.weights.array(name).ndim != 2:
            return False
        if options.get("alpha", 1.0) != 1.0 or options.get("beta", 1.0) != 1.0:
            return False
        by_rows = is_transposed != bool(options.get("transB"))
        x, bias = node.inputs[0], node.inputs[2] if len(node.inputs) == 3 else None
        result = name_of(node.outputs[0]) + ("" if bias is None else "/product")
        if x is None or not self.weights.has(name, by_rows):
            return False
        is_tied = name in self.tied and not self.products.quantizes_results
        by_block = is_tied or self.weights.needs_blocks(name, by_rows)
        product = self.products.multiply(make, x, (name, by_rows), result, by_block)
        if bias is not None:
            make.into(name_of(node.outputs[0]), "Add", product, bias)
        return True

    def _convolution(self, node: ir.Node, make: NodeMaker) -> bool:
        """Rewrites a convolution whose result has a range; returns whether it was one. Its weight is stored later."""
        result, kernel = name_of(node.outputs[0]), name_of(node.inputs[1]) if node.op_type == "Conv" else ""
        if kernel not in self.candidates or not self.products.has_range(result):
            return False
        self.products.convolve(make, node.inputs, attributes_of(node), result)
        self.convolved.add(kernel)
        return True

    def _function(self, node: ir.Node, make: NodeMaker) -> bool:
        """Rewrites an activation function whose argument has a range; returns whether it was one."""
        argument = self.products.rounded_argument(make, node.inputs[0]) if node.op_type in FUNCTIONS else None
        if argument is None:
            return False
        make.into(name_of(node.outputs[0]), node.op_type, argument, **attributes_of(node))
        return True

    def _table(self, node: ir.Node, make: NodeMaker) -> bool:
        """Rewrites a lookup of rows in a table, or of matrices in a stack of them; returns whether it was one."""
        name, result = name_of(node.inputs[0]) if node.op_type == "Gather" else "", name_of(node.outputs[0])
        if name not in self.candidates or node.attributes.get_int("axis", 0) != 0:
            return False
        if not self.weights.has(name, True):
            return False
        if self.products.quantizes_results:
            make.into(result, "Gather", self._table_of_halves(name), node.inputs[1])
            return True
        blocks, shape = self.weights.by_block(name, True), self.weights.array(name).shape[1:]
        look_up(make, blocks, shape, node.inputs[1], result, self.top, self.weights)
        return True
