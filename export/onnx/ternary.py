"""Ternary kernels of ONNX files in 2 bits a weight, read by `MatMulNBits`, with nothing lost.

The fast kernels of that op round activations to 8 bits, block by block, with a scale of 127 by the largest of the block.
What enters a ternary product is in whole numbers up to 127 already; so that each block's scale is 1, whatever it holds, each
ends with numbers of 127, whose weights are 0.
"""

import numpy as np
from onnx import helper

from keras_transformer.export.onnx.graphs import load_arrays, save
from keras_transformer.export.onnx.options import OnnxOptions
from keras_transformer.export.onnx.quantize import _import_contrib, _Maker
from keras_transformer.export.onnx.traversal import all_graphs, all_nodes
from keras_transformer.export.quantization.ternary import is_ternary, kernel_paths, pack_pairs

# Larger blocks are faster, up to here: with 256 numbers in one, ONNX Runtime takes a hundred times as long.
_BLOCKS = (128, 64, 32)
_ZERO = 2  # The code of a weight of 0.
_INT8_COMPUTE = 4


def quantize(spec, directory, files):
    """Packs the ternary kernels in the ONNX files of a bundle that is being written.

    Args:
        spec: the `ExportSpec`.
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.
    """
    loaded = {path: load_arrays(directory / path) for path in dict.fromkeys(files.values())}
    contrib_ops = (spec.onnx or OnnxOptions()).contrib_ops
    for model, arrays in loaded.values():
        _Packer(model, arrays, kernel_paths(spec.variables), contrib_ops).run()
    save(directory, loaded)


class _Packer:
    """Packs the kernels of one graph in place. `arrays` are its initializers by name: the new ones join them."""

    def __init__(self, model, arrays, paths, contrib_ops):
        self.model, self.arrays, self.contrib_ops = model, arrays, contrib_ops
        self.kernels = {
            name
            for name, array in arrays.items()
            if name.split("~")[0] in paths and array.ndim == 2 and is_ternary(array)
        }

    def run(self):
        if self.contrib_ops:
            for graph in reversed(list(all_graphs(self.model.graph))):
                self._rewrite(graph)
        read = {name for node in all_nodes(self.model.graph) for name in node.input}
        self._keep_in_8_bits(sorted(self.kernels & read))
        for name in self.kernels - read:
            del self.arrays[name]
        if any(node.domain == "com.microsoft" for node in all_nodes(self.model.graph)):
            _import_contrib(self.model)

    def _rewrite(self, graph):
        nodes, rows = [], {}
        for node in graph.node:
            if node.op_type in ("MatMul", "Gemm") and node.input[1] in self.kernels and len(node.input) == 2:
                self._multiply(_Maker(nodes, node, self._store), node, rows)
            else:
                nodes.append(node)
        del graph.node[:]
        graph.node.extend(nodes)

    def _multiply(self, make, node, rows):
        x, name = node.input
        options = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        kernel = self.arrays[name] if options.get("transB") else self.arrays[name].T
        count, width = kernel.shape
        block, blocks = _layout(width)
        if (x, width) not in rows:
            rows[x, width] = _guarded(make, x, width, block, blocks)
        codes = self._store(f"{name}.ternary", _packed(kernel, block, blocks))
        scale = self._store(f"{name}.ternary.scale", np.ones((count, blocks), "float32"))
        shape = {"K": block * blocks, "N": count, "bits": 2, "block_size": block, "accuracy_level": _INT8_COMPUTE}
        make.into(node.output[0], "MatMulNBits", rows[x, width], codes, scale, domain="com.microsoft", **shape)

    def _keep_in_8_bits(self, names):
        """What no such op reads is kept in whole bytes, and made float when the graph runs."""
        for name in names:
            codes = self._store(f"{name}.int8_whole", self.arrays.pop(name).astype("int8"))
            scale = self._store(f"{name}.int8_whole.scale", np.float32(1))
            node = helper.make_node("DequantizeLinear", [codes, scale], [name], f"{name}/to_float")
            self.model.graph.node.insert(0, node)

    def _store(self, name, array):
        self.arrays.setdefault(name, np.ascontiguousarray(array).reshape(np.shape(array)))
        return name


def _layout(width):
    """`(block, blocks)`, each with a place for the guard: the largest; of narrow rows those that take the fewest bytes."""
    layouts = [(block, -(-width // (block - 1))) for block in _BLOCKS]
    if width >= _BLOCKS[0]:
        return layouts[0]
    return min(layouts, key=lambda layout: layout[1] * (layout[0] / 4 + 4))


def _real(width, blocks):
    """How many numbers of a row stand in each block; the last has what is left."""
    return -(-width // blocks)


def _guarded(make, x, width, block, blocks):
    """Rows `(n, width)` cut into blocks that end with numbers of 127, `(n, blocks · block)`."""
    real = _real(width, blocks)
    if real * blocks != width:
        ends = make.constant(np.array([0, 0, 0, real * blocks - width]), "ends")
        x = make("Pad", x, ends, make.constant(np.float32(0), "nothing"))
    cut = make("Reshape", x, make.constant(np.array([-1, real]), "cut"))
    guards = make.constant(np.array([0, 0, 0, block - real]), "guards")
    cut = make("Pad", cut, guards, make.constant(np.float32(127), "largest"))
    return make("Reshape", cut, make.constant(np.array([-1, block * blocks]), "rows"))


def _packed(kernel, block, blocks):
    """A kernel `(N, K)` as `MatMulNBits` reads it, `(N, blocks, block / 4)`."""
    (count, width), real = kernel.shape, _real(kernel.shape[1], blocks)
    cut = np.full((count, real * blocks), _ZERO, "uint8")
    cut[:, :width] = kernel + _ZERO
    codes = np.full((count, blocks, block), _ZERO, "uint8")
    codes[:, :, :real] = cut.reshape(count, blocks, real)
    return pack_pairs(codes)
