"""Quantization of one ONNX graph: products, convolutions, functions and tables are rewritten in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from keras_transformer.export.onnx.graph import NodeMaker, all_graphs, all_nodes, import_contrib
from keras_transformer.export.onnx.quantization.calibrate import FUNCTIONS
from keras_transformer.export.onnx.quantization.integer_products import Layout, Products
from keras_transformer.export.onnx.quantization.integer_tables import look_up
from keras_transformer.export.onnx.quantization.quantized_weights import QuantizedWeights
from keras_transformer.export.quantization import block_quantize
from keras_transformer.export.quantization.options import KEPT
from keras_transformer.export.spec.lazy_array import AnyArray

if TYPE_CHECKING:
    import onnx

    from keras_transformer.export.quantization.options import Quantization

# Smaller weights are not quantized: the nodes would cost more.
_SMALL = 2048


def is_candidate(array: AnyArray) -> bool:
    """Whether a weight is large enough to quantize."""
    return array.dtype == np.float32 and array.ndim > 1 and array.size >= _SMALL


class GraphQuantizer:
    """Quantizes one graph in place.

    Args:
        model: `onnx.ModelProto`.
        weights: `QuantizedWeights` of its initializers.
        quantization: `Quantization`.
        groups: names of the weights that stay float, and of the tied ones.
        steps: whether this file is one of a decoder, and the `Layout` of the weights in 8 bits.
        contrib_ops: bool, as for `quantize_files`.
        ranges: as for `quantize_files`.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        weights: QuantizedWeights,
        quantization: Quantization,
        groups: tuple[set[str], set[str]],
        steps: tuple[bool, Layout],
        contrib_ops: bool,
        ranges: dict[str, tuple[float, float]] | None,
    ) -> None:
        self.model, self.weights, self.arrays, self.quantization = model, weights, weights.arrays, quantization
        kept, self.tied = groups
        self.is_step, layout = steps
        self.top: list[Any] = []
        self.products = Products(self.weights, quantization, self.top, contrib_ops, ranges or {}, layout)
        self.candidates = {name for name, array in self.arrays.items() if is_candidate(array) and name not in kept}
        self.transposed: dict[str, str] = {}
        self.halves: dict[str, str] = {}
        self.convolved: set[str] = set()

    def run(self) -> None:
        """Replaces the nodes of the graph, and its weights in `weights`."""
        if self.quantization.mode == "fp16":
            self._store_in_float16()
        else:
            self._find_transposed()
            # Bodies before enclosing graphs: replacing the nodes of a graph copies its loops.
            for number, graph in reversed(list(enumerate(all_graphs(self.model.graph)))):
                self.products.enter_graph(self.is_step or number > 0)
                self._rewrite(graph)
            if self.quantization.mode not in KEPT:
                self._store_the_rest_in_8_bits()
        nodes = [*self.top, *self.model.graph.node]
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)
        read = {name for node in all_nodes(self.model.graph) for name in node.input}
        for name in [name for name in self.arrays if name not in read]:
            del self.arrays[name]
        import_contrib(self.model)

    def _store_in_float16(self):
        for name in sorted(self.candidates):
            half = self.weights.store(f"{name}.fp16", np.asarray(self.arrays.pop(name)).astype("float16"))
            self.top.append(helper.make_node("Cast", [half], [name], f"{name}/to_float", to=TensorProto.FLOAT))

    def _store_the_rest_in_8_bits(self):
        read = {name for node in all_nodes(self.model.graph) for name in node.input}
        # A processor that multiplies integers to integers computes with other constants, such as positions, in floats.
        names = self.convolved if self.products.quantizes_results else self.candidates
        for name in sorted(names & read):
            self.top.append(self._dequantized(name))

    def _dequantized(self, name: str) -> Any:
        """A node that computes a weight from 8 bits, with a scale for each index of the first axis."""
        array = np.asarray(self.arrays.pop(name))
        q, scale = block_quantize.by_channel(array.reshape(len(array), -1).T)
        codes = self.weights.store(f"{name}.int8_whole", np.ascontiguousarray(q.T).reshape(array.shape))
        scales = self.weights.store(f"{name}.int8_whole.scale", scale)
        return helper.make_node(
            "DequantizeLinear", [codes, scales, self.weights.zeros(scales)], [name], f"{name}/to_float", axis=0
        )

    def _half(self, name: str) -> str:
        """The name of a table that is stored in 16 bits. Processors of integers look rows up in floats or in one scale."""
        half = f"{name}.fp16"
        if half not in self.halves:
            self.weights.store(half, np.asarray(self.arrays[name]).astype("float16"))
            self.halves[half] = f"{half}/to_float"
            self.top.append(
                helper.make_node("Cast", [half], [f"{half}/to_float"], f"{name}/to_float", to=TensorProto.FLOAT)
            )
        return self.halves[half]

    def _find_transposed(self):
        for node in all_nodes(self.model.graph):
            name = node.input[0] if node.op_type == "Transpose" else None
            if name in self.candidates and self.arrays[name].ndim == 2:
                self.transposed[node.output[0]] = name

    def _rewrite(self, graph: Any):
        nodes: list[Any] = []
        for node in graph.node:
            make = NodeMaker(nodes, node, self.weights.store)
            if not any(
                rewrite(node, make) for rewrite in (self._product, self._convolution, self._function, self._table)
            ):
                nodes.append(node)
        read = {name for node in nodes for name in node.input} | {value.name for value in graph.output}
        kept = [node for node in nodes if node.op_type != "Transpose" or node.output[0] in read]
        del graph.node[:]
        graph.node.extend(kept)

    def _product(self, node: Any, make: NodeMaker) -> bool:
        """Rewrites a product of activations and a weight; returns whether it was one."""
        if node.op_type not in ("MatMul", "Gemm"):
            return False
        options = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        name = self.transposed.get(node.input[1], node.input[1])
        if name not in self.candidates or self.arrays[name].ndim != 2 or options.get("transA"):
            return False
        if options.get("alpha", 1.0) != 1.0 or options.get("beta", 1.0) != 1.0:
            return False
        by_rows = (name != node.input[1]) != bool(options.get("transB"))
        bias = node.input[2] if len(node.input) == 3 else None
        result = node.output[0] if bias is None else f"{node.output[0]}/product"
        if not self.weights.has(name, by_rows):
            return False
        is_tied = name in self.tied and not self.products.quantizes_results
        by_block = is_tied or self.weights.needs_blocks(name, by_rows)
        self.products.multiply(make, node.input[0], (name, by_rows), result, by_block)
        if bias is not None:
            make.into(node.output[0], "Add", result, bias)
        return True

    def _convolution(self, node: Any, make: NodeMaker) -> bool:
        """Rewrites a convolution whose result has a range; returns whether it was one. Its weight is stored later."""
        if (
            node.op_type != "Conv"
            or node.input[1] not in self.candidates
            or not self.products.has_range(node.output[0])
        ):
            return False
        options = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        self.products.convolve(make, node.input, options, node.output[0])
        self.convolved.add(node.input[1])
        return True

    def _function(self, node: Any, make: NodeMaker) -> bool:
        """Rewrites an activation function whose argument has a range; returns whether it was one."""
        argument = self.products.rounded_argument(make, node.input[0]) if node.op_type in FUNCTIONS else None
        if argument is None:
            return False
        options = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        make.into(node.output[0], node.op_type, argument, **options)
        return True

    def _table(self, node: Any, make: NodeMaker) -> bool:
        """Rewrites a lookup of rows in a table, or of matrices in a stack of them; returns whether it was one."""
        if node.op_type != "Gather" or node.input[0] not in self.candidates:
            return False
        if any(each.name == "axis" and each.i != 0 for each in node.attribute):
            return False
        if not self.weights.has(node.input[0], True):
            return False
        if self.products.quantizes_results:
            make.into(node.output[0], "Gather", self._half(node.input[0]), node.input[1])
            return True
        blocks, shape = self.weights.by_block(node.input[0], True), self.arrays[node.input[0]].shape[1:]
        look_up(make, blocks, shape, node.input[1], node.output[0], self.top, self.weights)
        return True
