"""Quantization of ONNX files: integer products and tables, in loop bodies too.

The graphs of a bundle share their weights, so a weight is quantized in the same way for all consumers and stored once.
`MatMul`, `Gemm` and `Gather` get integer kernels. Other large weights (of convolutions, tables of positions) are stored in
8 bits and dequantized when the graph runs.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from keras_transformer.export.onnx.graphs import load_arrays, save
from keras_transformer.export.onnx.node_maker import NodeMaker, import_contrib
from keras_transformer.export.onnx.options import CONTRIB, OnnxOptions
from keras_transformer.export.onnx.quantized_weights import QuantizedWeights
from keras_transformer.export.onnx.traversal import all_graphs, all_nodes
from keras_transformer.export.quantization import block_quantize
from keras_transformer.export.quantization.options import matches

if TYPE_CHECKING:
    import pathlib

    import onnx

    from keras_transformer.export.quantization.options import Quantization
    from keras_transformer.export.spec.export_spec import ExportSpec


# Smaller weights are not quantized: the nodes would cost more.
_SMALL = 2048
# `MatMulNBits`: activations are quantized by block too, which has fast kernels.
_INT8_COMPUTE = 4
_BITS = {"int8": 8, "int8_static": 8, "weight_int8": 8, "weight_int4": 4}


def quantize(spec: ExportSpec, directory: pathlib.Path, files: dict[str, str]) -> None:
    """Quantizes the ONNX files of a bundle that is being written.

    Args:
        spec: the `ExportSpec`, with its `quantization`.
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight, or the calibration does not fit.
    """
    ranges = None
    if spec.quantization.mode == "int8_static":
        from keras_transformer.export.onnx.calibrate import ranges_of

        ranges = ranges_of(directory, files, spec.quantization.calibration)
    contrib_ops = (spec.onnx or OnnxOptions()).contrib_ops
    quantize_files(directory, files, spec.quantization, contrib_ops=contrib_ops, ranges=ranges)


def quantize_files(
    directory: pathlib.Path,
    files: dict[str, str],
    quantization: Quantization,
    *,
    contrib_ops: bool = True,
    ranges: dict[str, tuple[float, float]] | None = None,
) -> None:
    """Quantizes ONNX files.

    Args:
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.
        quantization: `Quantization`.
        contrib_ops: bool. Whether contrib ops of ONNX Runtime may be used; without them, "weight_int8" and "weight_int4"
            dequantize weights before each product.
        ranges: for "int8_static": dict of tensor name to its least and largest value; see `calibrate.ranges_of`.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight.
    """
    loaded = {path: load_arrays(directory / path) for path in dict.fromkeys(files.values())}
    names = {name for _, arrays in loaded.values() for name in arrays}
    kept = matches(names, quantization.keep_float)
    tied = {name for model, arrays in loaded.values() for name in _tied(model, arrays)}
    done: dict[Any, Any] = {}
    for model, arrays in loaded.values():
        _Quantizer(model, arrays, quantization, (kept, tied), contrib_ops, ranges, done).run()
    save(directory, loaded)


def _tied(model: onnx.ModelProto, arrays: dict[str, np.ndarray]) -> set[str]:
    """Weights that are both an embedding table and a projection matrix."""
    roles: dict[str, Any] = {}
    for node in all_nodes(model.graph):
        for position, name in enumerate(node.input):
            if name in arrays:
                roles.setdefault(name, set()).add((node.op_type, position))
    return {name for name, role in roles.items() if ("Gather", 0) in role and len(role) > 1}


def is_candidate(array: np.ndarray) -> bool:
    """Whether a weight is large enough to quantize."""
    return array.dtype == np.float32 and array.ndim > 1 and array.size >= _SMALL


class _Quantizer:
    """Quantizes one graph in place.

    Args:
        model: `onnx.ModelProto`.
        arrays: its initializers by name; new ones are added.
        quantization: `Quantization`.
        groups: names of the weights that stay float, and of the tied ones.
        contrib_ops: bool, as for `quantize_files`.
        ranges: as for `quantize_files`.
        done: quantized weights of other graphs by label.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        arrays: dict[str, np.ndarray],
        quantization: Quantization,
        groups: tuple[set[str], set[str]],
        contrib_ops: bool,
        ranges: dict[str, tuple[float, float]] | None,
        done: dict[str, Any],
    ) -> None:
        self.model, self.arrays, self.quantization = model, arrays, quantization
        kept, self.tied = groups
        self.contrib_ops, self.ranges = contrib_ops, ranges or {}
        self.bits = _BITS.get(quantization.mode, 8)
        self.weights = QuantizedWeights(arrays, self.bits, quantization.block_size, done)
        self.candidates = {name for name, array in arrays.items() if is_candidate(array) and name not in kept}
        self.transposed: dict[str, str] = {}
        self.top: list[Any] = []

    def run(self) -> None:
        if self.quantization.mode == "fp16":
            self._store_in_float16()
        else:
            self._find_transposed()
            # Bodies before enclosing graphs: replacing the nodes of a graph copies its loops.
            for graph in reversed(list(all_graphs(self.model.graph))):
                self._rewrite(graph)
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
            half = self.weights.store(f"{name}.fp16", self.arrays.pop(name).astype("float16"))
            self.top.append(helper.make_node("Cast", [half], [name], f"{name}/to_float", to=TensorProto.FLOAT))

    def _store_the_rest_in_8_bits(self):
        read = {name for node in all_nodes(self.model.graph) for name in node.input}
        for name in sorted(self.candidates & read):
            array = self.arrays.pop(name)
            q, scale = block_quantize.by_channel(array.reshape(len(array), -1).T)
            codes = self.weights.store(f"{name}.int8_whole", np.ascontiguousarray(q.T).reshape(array.shape))
            scales = self.weights.store(f"{name}.int8_whole.scale", scale)
            node = helper.make_node("DequantizeLinear", [codes, scales], [name], f"{name}/to_float", axis=0)
            self.top.append(node)

    def _find_transposed(self):
        for node in all_nodes(self.model.graph):
            name = node.input[0] if node.op_type == "Transpose" else None
            if name in self.candidates and self.arrays[name].ndim == 2:
                self.transposed[node.output[0]] = name

    def _rewrite(self, graph: Any):
        nodes: list[Any] = []
        quantized: dict[Any, Any] = {}
        for node in graph.node:
            make = NodeMaker(nodes, node, self.weights.store)
            if not self._product(node, make, quantized) and not self._table(node, make):
                nodes.append(node)
        read = {name for node in nodes for name in node.input} | {value.name for value in graph.output}
        kept = [node for node in nodes if node.op_type != "Transpose" or node.output[0] in read]
        del graph.node[:]
        graph.node.extend(kept)

    def _product(self, node: Any, make: NodeMaker, quantized):
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
        self._multiply(make, node.input[0], name, by_rows, result, quantized)
        if bias is not None:
            make.into(node.output[0], "Add", result, bias)
        return True

    def _multiply(self, make: NodeMaker, x: str, name: str, by_rows: bool, result: str, quantized):
        mode = self.quantization.mode
        if self.contrib_ops and (mode.startswith("weight") or name in self.tied):
            return self._multiply_by_blocks(make, x, name, by_rows, result)
        if mode.startswith("weight") or name in self.tied:
            return self._multiply_by_float(make, x, name, by_rows, result)
        weight, scale = self.weights.by_channel(name, by_rows)
        if mode == "int8_static":
            return self._multiply_calibrated(make, x, weight, scale, result)
        if x not in quantized:
            quantized[x] = make.several(3, "DynamicQuantizeLinear", x)
        codes, x_scale, zero = quantized[x]
        product = make("Cast", make("MatMulInteger", codes, weight, zero), to=TensorProto.FLOAT)
        return make.into(result, "Mul", product, make("Mul", x_scale, scale))

    def _multiply_calibrated(self, make: NodeMaker, x: str, weight, scale, result: str):
        least, most = self.ranges[x]
        least, most = min(least, 0.0), max(most, 1e-6)
        step = np.float32((most - least) / 255)
        position = [make.constant(step, "step"), make.constant(np.uint8(round(-least / step)), "zero")]
        x = make("DequantizeLinear", make("QuantizeLinear", x, *position), *position)
        return make.into(result, "MatMul", x, make("DequantizeLinear", weight, scale, axis=1))

    def _multiply_by_blocks(self, make: NodeMaker, x: str, name: str, by_rows: bool, result: str):
        codes, scale, block, (count, width) = self.weights.by_block(name, by_rows)
        shape = {"K": width, "N": count, "bits": self.bits, "block_size": block, "accuracy_level": _INT8_COMPUTE}
        scale = self._as_float(scale, make)
        return make.into(result, "MatMulNBits", x, codes, scale, domain=CONTRIB, **shape)

    def _multiply_by_float(self, make: NodeMaker, x: str, name: str, by_rows: bool, result: str):
        """A product with a dequantized weight, with standard ops only."""
        rows = self._rows(make, name, by_rows, None)
        return make.into(result, "MatMul", x, make("Transpose", rows, perm=[1, 0]))

    def _table(self, node: Any, make: NodeMaker):
        """Rewrites a row lookup in a table; returns whether it was one."""
        if node.op_type != "Gather" or node.input[0] not in self.candidates or self.arrays[node.input[0]].ndim != 2:
            return False
        if any(each.name == "axis" and each.i != 0 for each in node.attribute):
            return False
        name, indices = node.input
        width = self.arrays[name].shape[1]
        rows = self._rows(make, name, True, make("Reshape", indices, make.constant(np.array([-1]), "flat")))
        shape = make("Concat", make("Shape", indices), make.constant(np.array([width]), "width"), axis=0)
        make.into(node.output[0], "Reshape", rows, shape)
        return True

    def _rows(self, make: NodeMaker, name: str, by_rows: bool, indices):
        """Dequantized rows of a blockwise weight: those of `indices`, or all."""
        codes, scale, block, (count, width) = self.weights.by_block(name, by_rows)
        blocks = self.arrays[codes].shape[1]
        flat = self._flat(codes, count)
        take = (lambda table: table) if indices is None else (lambda table: make("Gather", table, indices))
        numbers = take(flat)
        if self.bits == 4:
            low = make("BitwiseAnd", numbers, make.constant(np.uint8(15), "nibble"))
            high = make("BitShift", numbers, make.constant(np.uint8(4), "shift"), direction="RIGHT")
            last = make.constant(np.array([-1]), "last")
            numbers = make("Concat", make("Unsqueeze", low, last), make("Unsqueeze", high, last), axis=-1)
        numbers = make("Reshape", numbers, make.constant(np.array([-1, blocks, block]), "blocks"))
        middle = make.constant(np.float32(1 << self.bits - 1), "middle")
        numbers = make("Sub", make("Cast", numbers, to=TensorProto.FLOAT), middle)
        scale = make("Cast", take(scale), to=TensorProto.FLOAT) if self.bits == 4 else take(scale)
        numbers = make("Mul", numbers, make("Unsqueeze", scale, make.constant(np.array([-1]), "last")))
        rows = make("Reshape", numbers, make.constant(np.array([-1, blocks * block]), "rows"))
        if blocks * block == width:
            return rows
        bounds = [make.constant(np.array([each]), f"bound_{each}") for each in (0, width, 1)]
        return make("Slice", rows, bounds[0], bounds[1], bounds[2])

    def _flat(self, codes, count):
        """Blocks as whole rows: the same bytes under another shape, which the runtime makes of them when it loads."""
        flat = f"{codes}.rows"
        if flat not in {node.output[0] for node in self.top}:
            shape = self.weights.store(f"{flat}.shape", np.array([count, -1]))
            self.top.append(helper.make_node("Reshape", [codes, shape], [flat], flat))
        return flat

    def _as_float(self, scale, make: NodeMaker):
        """Scales of 4-bit blocks are stored in float16; the runtime casts them once, when it loads."""
        return make("Cast", scale, to=TensorProto.FLOAT) if self.bits == 4 else scale
