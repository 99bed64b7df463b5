"""Lossless packing of ternary kernels of ONNX files in 2 bits a weight, for `MatMulNBits`.

The fast kernels of that op round activations to 8 bits by block, with a scale of 127 / max |x| of the block. The inputs of
a ternary product are integers up to 127 already. Each block is padded with values of 127, whose weights are 0, so that its
scale is 1.
"""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from keras_transformer.export.onnx.graph import NodeMaker, all_graphs, all_nodes, import_contrib
from keras_transformer.export.onnx.options import CONTRIB, OnnxOptions
from keras_transformer.export.onnx.weights.graph_files import GraphFiles, load_arrays
from keras_transformer.export.quantization.ternary import is_ternary, kernel_paths, pack_pairs

if TYPE_CHECKING:
    import pathlib

    import onnx

    from keras_transformer.export.spec.export_spec import ExportSpec


# Larger blocks are faster up to 128; with 256, ONNX Runtime takes a hundred times as long.
_BLOCKS = (128, 64, 32)
_ZERO = 2  # The code of a weight of 0.
_INT8_COMPUTE = 4


def quantize(spec: ExportSpec, directory: pathlib.Path, files: dict[str, str]) -> None:
    """Packs the ternary kernels in the ONNX files of a bundle that is being written.

    Args:
        spec: the `ExportSpec`.
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.
    """
    loaded = {path: load_arrays(directory / path) for path in dict.fromkeys(files.values())}
    contrib_ops = (spec.onnx or OnnxOptions()).contrib_ops
    for path, (model, arrays) in loaded.items():
        read = {name: np.asarray(array) for name, array in arrays.items()}
        _Packer(model, read, kernel_paths(spec.variables), contrib_ops).run()
        loaded[path] = model, dict[str, Any](read)
    GraphFiles(directory, len(loaded)).save(loaded)


class _Packer:
    """Packs the kernels of one graph in place. `arrays` are its initializers by name; new ones are added."""

    def __init__(self, model: onnx.ModelProto, arrays: dict[str, np.ndarray], paths: Any, contrib_ops: bool) -> None:
        self.model, self.arrays, self.contrib_ops = model, arrays, contrib_ops
        self.kernels = {
            name
            for name, array in arrays.items()
            if name.split("~")[0] in paths and array.ndim == 2 and is_ternary(array)
        }

    def run(self) -> None:
        if self.contrib_ops:
            for graph in reversed(list(all_graphs(self.model.graph))):
                self._rewrite(graph)
        read = {name for node in all_nodes(self.model.graph) for name in node.input}
        self._keep_in_8_bits(sorted(self.kernels & read))
        for name in self.kernels - read:
            del self.arrays[name]
        import_contrib(self.model)

    def _rewrite(self, graph: Any):
        nodes: list[Any] = []
        rows: dict[Any, Any] = {}
        for node in graph.node:
            if node.op_type in ("MatMul", "Gemm") and node.input[1] in self.kernels and len(node.input) == 2:
                self._multiply(NodeMaker(nodes, node, self._store), node, rows)
            else:
                nodes.append(node)
        del graph.node[:]
        graph.node.extend(nodes)

    def _multiply(self, make, node: Any, rows):
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
        make.into(node.output[0], "MatMulNBits", rows[x, width], codes, scale, domain=CONTRIB, **shape)

    def _keep_in_8_bits(self, names):
        """Stores kernels with other consumers in 8 bits; they are dequantized when the graph runs."""
        for name in names:
            codes = self._store(f"{name}.int8_whole", self.arrays.pop(name).astype("int8"))
            scale = self._store(f"{name}.int8_whole.scale", np.array(1, "float32"))
            node = helper.make_node("DequantizeLinear", [codes, scale], [name], f"{name}/to_float")
            self.model.graph.node.insert(0, node)

    def _store(self, name: str, array: np.ndarray):
        self.arrays.setdefault(name, np.ascontiguousarray(array).reshape(np.shape(array)))
        return name


def _layout(width: int) -> tuple[int, int]:
    """`(block, blocks)` with padding: the largest blocks, or for narrow rows those with the fewest bytes."""
    layouts = [(block, -(-width // (block - 1))) for block in _BLOCKS]
    if width >= _BLOCKS[0]:
        return layouts[0]
    return min(layouts, key=lambda layout: layout[1] * (layout[0] / 4 + 4))


def _real(width: int, blocks: int) -> int:
    """How many values of a row are in each block; the last block has the rest."""
    return -(-width // blocks)


def _guarded(make: NodeMaker, x: str, width: int, block: int, blocks: int) -> str:
    """Rows `(n, width)` split into blocks that are padded with 127, `(n, blocks · block)`."""
    real = _real(width, blocks)
    if real * blocks != width:
        ends = make.constant(np.array([0, 0, 0, real * blocks - width]), "ends")
        x = make("Pad", x, ends, make.constant(np.float32(0), "nothing"))
    cut = make("Reshape", x, make.constant(np.array([-1, real]), "cut"))
    guards = make.constant(np.array([0, 0, 0, block - real]), "guards")
    cut = make("Pad", cut, guards, make.constant(np.float32(127), "largest"))
    return make("Reshape", cut, make.constant(np.array([-1, block * blocks]), "rows"))


def _packed(kernel: np.ndarray, block: int, blocks: int) -> np.ndarray:
    """A kernel `(N, K)` in the layout of `MatMulNBits`, `(N, blocks, block / 4)`."""
    (count, width), real = kernel.shape, _real(kernel.shape[1], blocks)
    cut = np.full((count, real * blocks), _ZERO, "uint8")
    cut[:, :width] = kernel + _ZERO
    codes = np.full((count, blocks, block), _ZERO, "uint8")
    codes[:, :, :real] = cut.reshape(count, blocks, real)
    return pack_pairs(codes)
