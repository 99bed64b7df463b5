"""Quantized ONNX files from float ones: products in whole numbers, tables of whole numbers, in loops too.

The graphs of a bundle share their weights, so a weight is quantized in the same way wherever it is read, and lies in the
file once. What is read by `MatMul`, `Gemm` and `Gather` gets kernels for whole numbers; any other large weight (of a
convolution, a table of positions) is kept in 8 bits and made float when the graph runs.
"""

import numpy as np
from onnx import TensorProto, helper

from keras_transformer.export.onnx.graphs import load_arrays, save
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.traversal import all_graphs, all_nodes
from keras_transformer.export.quantization import block_quantize
from keras_transformer.export.quantization.options import matches

# Fewer numbers than these are not worth the nodes.
_SMALL = 2048
# `MatMulNBits`: activations are quantized too, block by block, which is what has fast kernels.
_INT8_COMPUTE = 4
_BITS = {"int8": 8, "int8_static": 8, "weight_int8": 8, "weight_int4": 4}
_TABLE_BLOCK = 128


def quantize(spec, directory, files):
    """Replaces the ONNX files of a bundle that is being written by quantized ones.

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


def quantize_files(directory, files, quantization, *, contrib_ops=True, ranges=None):
    """Replaces ONNX files by quantized ones.

    Args:
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.
        quantization: `Quantization`.
        contrib_ops: bool. Whether ops of ONNX Runtime's own may be used; without them "weight_int8" and "weight_int4" make
            weights float before each product.
        ranges: for "int8_static": dict of tensor name to its least and largest value; see `calibrate.ranges_of`.

    Raises:
        QuantizationError: a pattern of `keep_float` matches no weight.
    """
    loaded = {path: load_arrays(directory / path) for path in dict.fromkeys(files.values())}
    names = {name for _, arrays in loaded.values() for name in arrays}
    kept = matches(names, quantization.keep_float)
    tied = {name for model, arrays in loaded.values() for name in _tied(model, arrays)}
    done = {}
    for model, arrays in loaded.values():
        _Quantizer(model, arrays, quantization, (kept, tied), contrib_ops, ranges, done).run()
    save(directory, loaded)


def _tied(model, arrays):
    """Weights that are both a table to read rows from, and a matrix to multiply by."""
    roles = {}
    for node in all_nodes(model.graph):
        for place, name in enumerate(node.input):
            if name in arrays:
                roles.setdefault(name, set()).add((node.op_type, place))
    return {name for name, role in roles.items() if ("Gather", 0) in role and len(role) > 1}


def is_candidate(array):
    """Whether a weight is worth quantizing."""
    return array.dtype == np.float32 and array.ndim > 1 and array.size >= _SMALL


class _Quantizer:
    """Quantizes one graph in place. `arrays` are its initializers by name: the new ones join them.

    `groups` are the names of the weights that are kept and of those that are tied; `done` is what other graphs have made.
    """

    def __init__(self, model, arrays, quantization, groups, contrib_ops, ranges, done):
        self.model, self.arrays, self.quantization, self.done = model, arrays, quantization, done
        kept, self.tied = groups
        self.contrib_ops, self.ranges = contrib_ops, ranges or {}
        self.bits = _BITS.get(quantization.mode, 8)
        self.candidates = {name for name, array in arrays.items() if is_candidate(array) and name not in kept}
        self.transposed = {}
        self.top = []

    def run(self):
        if self.quantization.mode == "fp16":
            self._halve()
        else:
            self._find_transposed()
            # Bodies before the graphs that hold them: to give a graph other nodes is to copy its loops.
            for graph in reversed(list(all_graphs(self.model.graph))):
                self._rewrite(graph)
            self._keep_the_rest_in_8_bits()
        nodes = [*self.top, *self.model.graph.node]
        del self.model.graph.node[:]
        self.model.graph.node.extend(nodes)
        read = {name for node in all_nodes(self.model.graph) for name in node.input}
        for name in [name for name in self.arrays if name not in read]:
            del self.arrays[name]
        if any(node.domain == "com.microsoft" for node in all_nodes(self.model.graph)):
            _import_contrib(self.model)

    # Weights as a whole.

    def _halve(self):
        for name in sorted(self.candidates):
            half = self._store(f"{name}.fp16", self.arrays.pop(name).astype("float16"))
            self.top.append(helper.make_node("Cast", [half], [name], f"{name}/to_float", to=TensorProto.FLOAT))

    def _keep_the_rest_in_8_bits(self):
        read = {name for node in all_nodes(self.model.graph) for name in node.input}
        for name in sorted(self.candidates & read):
            array = self.arrays.pop(name)
            q, scale = block_quantize.by_channel(array.reshape(len(array), -1).T)
            codes = self._store(f"{name}.int8_whole", np.ascontiguousarray(q.T).reshape(array.shape))
            scales = self._store(f"{name}.int8_whole.scale", scale)
            node = helper.make_node("DequantizeLinear", [codes, scales], [name], f"{name}/to_float", axis=0)
            self.top.append(node)

    def _find_transposed(self):
        for node in all_nodes(self.model.graph):
            name = node.input[0] if node.op_type == "Transpose" else None
            if name in self.candidates and self.arrays[name].ndim == 2:
                self.transposed[node.output[0]] = name

    # Nodes.

    def _rewrite(self, graph):
        nodes, quantized = [], {}
        for node in graph.node:
            make = _Maker(nodes, node, self._store)
            if not self._product(node, make, quantized) and not self._table(node, make):
                nodes.append(node)
        read = {name for node in nodes for name in node.input} | {value.name for value in graph.output}
        kept = [node for node in nodes if node.op_type != "Transpose" or node.output[0] in read]
        del graph.node[:]
        graph.node.extend(kept)

    def _product(self, node, make, quantized):
        """Rewrites a product of activations with a weight; returns whether it was one."""
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

    def _multiply(self, make, x, name, by_rows, result, quantized):
        mode = self.quantization.mode
        if self.contrib_ops and (mode.startswith("weight") or name in self.tied):
            return self._multiply_by_blocks(make, x, name, by_rows, result)
        if mode.startswith("weight") or name in self.tied:
            return self._multiply_by_float(make, x, name, by_rows, result)
        weight, scale = self._channels(name, by_rows)
        if mode == "int8_static":
            return self._multiply_calibrated(make, x, weight, scale, result)
        if x not in quantized:
            quantized[x] = make.several(3, "DynamicQuantizeLinear", x)
        codes, x_scale, zero = quantized[x]
        product = make("Cast", make("MatMulInteger", codes, weight, zero), to=TensorProto.FLOAT)
        return make.into(result, "Mul", product, make("Mul", x_scale, scale))

    def _multiply_calibrated(self, make, x, weight, scale, result):
        least, most = self.ranges[x]
        least, most = min(least, 0.0), max(most, 1e-6)
        step = np.float32((most - least) / 255)
        place = [make.constant(step, "step"), make.constant(np.uint8(round(-least / step)), "zero")]
        x = make("DequantizeLinear", make("QuantizeLinear", x, *place), *place)
        return make.into(result, "MatMul", x, make("DequantizeLinear", weight, scale, axis=1))

    def _multiply_by_blocks(self, make, x, name, by_rows, result):
        codes, scale, block, (count, width) = self._blocks(name, by_rows)
        shape = {"K": width, "N": count, "bits": self.bits, "block_size": block, "accuracy_level": _INT8_COMPUTE}
        scale = self._as_float(scale, make)
        return make.into(result, "MatMulNBits", x, codes, scale, domain="com.microsoft", **shape)

    def _multiply_by_float(self, make, x, name, by_rows, result):
        """By a weight that is made float first: with no ops but ONNX's own."""
        rows = self._rows(make, name, by_rows, None)
        return make.into(result, "MatMul", x, make("Transpose", rows, perm=[1, 0]))

    def _table(self, node, make):
        """Rewrites the reading of rows from a table; returns whether it was that."""
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

    def _rows(self, make, name, by_rows, indices):
        """Float rows of a weight kept by blocks: those of `indices`, or all."""
        codes, scale, block, (count, width) = self._blocks(name, by_rows)
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
            shape = self._store(f"{flat}.shape", np.array([count, -1]))
            self.top.append(helper.make_node("Reshape", [codes, shape], [flat], flat))
        return flat

    # Weights in whole numbers.

    def _channels(self, name, by_rows):
        """Names of the weight `(K, N)` in 8 bits and of its scales, one for each channel that comes out."""
        array = self.arrays[name]
        label = f"{name}.int8_by_row" if by_rows else f"{name}.int8"
        return self._quantized(label, array.T if by_rows else array, block_quantize.by_channel)

    def _blocks(self, name, by_rows):
        """Names of the weight by blocks `(N, blocks, bytes)` and of its scales `(N, blocks)`; block; `(N, K)`."""
        rows = self.arrays[name] if by_rows else self.arrays[name].T
        block = self.quantization.block_size if self.bits == 4 else _largest_block(rows.shape[1])

        def by_block(rows):
            codes, scale = block_quantize.by_block(rows, self.bits, block)
            return (codes, scale) if self.bits == 8 else (block_quantize.pack_nibbles(codes), scale.astype("float16"))

        label = f"{name}.int{self.bits}_blocks" + ("" if by_rows else "_by_column")
        return *self._quantized(label, rows, by_block), block, rows.shape

    def _quantized(self, label, array, compute):
        """Names of the codes and the scales of a weight; what another graph has of the same weight is not made again."""
        source, made = self.done.get(label, (None, None))
        if source is None or not np.array_equal(source, array):
            made = compute(array)
            self.done[label] = array, made
        return self._store(label, made[0]), self._store(f"{label}.scale", made[1])

    def _as_float(self, scale, make):
        """Scales of 4-bit blocks are kept in half precision: the runtime makes them float once, when it loads."""
        return make("Cast", scale, to=TensorProto.FLOAT) if self.bits == 4 else scale

    def _store(self, name, array):
        self.arrays.setdefault(name, np.ascontiguousarray(array).reshape(np.shape(array)))
        return name


class _Maker:
    """Appends nodes that take the place of one node, and are named after it."""

    def __init__(self, nodes, node, store):
        self._nodes, self._store = nodes, store
        self._name = node.name or node.output[0]
        self._result = node.output[0]
        self._count = 0

    def __call__(self, op, *inputs, **attributes):
        return self.several(1, op, *inputs, **attributes)[0]

    def several(self, count, op, *inputs, **attributes):
        self._count += 1
        outputs = [f"{self._result}/{op}_{self._count}_{index}" for index in range(count)]
        self._nodes.append(helper.make_node(op, inputs, outputs, f"{self._name}/{op}_{self._count}", **attributes))
        return outputs

    def into(self, result, op, *inputs, **attributes):
        self._count += 1
        self._nodes.append(helper.make_node(op, inputs, [result], f"{self._name}/{op}_{self._count}", **attributes))
        return result

    def constant(self, value, label):
        return self._store(f"{self._result}/{label}", np.asarray(value))


def _largest_block(width):
    """The largest block up to 128 that divides a row, so that nothing is filled up; else 32."""
    return next((block for block in (_TABLE_BLOCK, 64, 32, 16) if width % block == 0), 32)


def _import_contrib(model):
    if not any(each.domain == "com.microsoft" for each in model.opset_import):
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
