"""Lossless packing of ternary kernels of ONNX files in 2 bits a weight, for `MatMulNBits`.

The fast kernels of that op round activations to 8 bits by block, with a scale of 127 / max |x| of the block. The inputs of
a ternary product are integers up to 127 already. Each block is padded with values of 127, whose weights are 0, so that its
scale is 1.
"""

from __future__ import annotations

import pathlib
from collections.abc import Container
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from keras_transformer.export.onnx.graph import (
    NodeMaker,
    add_constant,
    all_graphs,
    import_contrib,
    make_node,
    name_of,
    put_first,
)
from keras_transformer.export.onnx.options import CONTRIB, OnnxOptions
from keras_transformer.export.onnx.weights.files import GraphFiles, read
from keras_transformer.export.onnx.weights.lazy_tensors import constant_of
from keras_transformer.export.quantization.ternary import is_ternary, kernel_paths, pack_pairs

if TYPE_CHECKING:
    import pathlib

    from keras_transformer.export.data.export_spec import ExportSpec


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
    models = {path: read(directory / path) for path in dict.fromkeys(files.values())}
    contrib_ops = (spec.onnx or OnnxOptions()).contrib_ops
    for model in models.values():
        _Packer(model, kernel_paths(spec.variables), contrib_ops).run()
    GraphFiles(directory, len(models)).save(models)


class _Packer:
    """Packs the kernels of one graph in place."""

    def __init__(self, model: ir.Model, paths: Container[str], contrib_ops: bool) -> None:
        self.model, self.graph, self.contrib_ops = model, model.graph, contrib_ops
        names = [name for name in self.graph.initializers if name.split("~")[0] in paths]
        arrays = {name: np.asarray(constant_of(self.graph.initializers[name])) for name in names}
        self.kernels = {name: array for name, array in arrays.items() if array.ndim == 2 and is_ternary(array)}

    def run(self) -> None:
        if self.contrib_ops:
            for graph in reversed(list(all_graphs(self.graph))):
                self._rewrite(graph)
        self._keep_in_8_bits([name for name in sorted(self.kernels) if self.graph.initializers[name].uses()])
        for name in self.kernels.keys() & self.graph.initializers.keys():
            del self.graph.initializers[name]
        import_contrib(self.model)

    def _rewrite(self, graph: ir.Graph) -> None:
        rows: dict[tuple[ir.Value, int], ir.Value] = {}
        for node in list(graph):
            if node.op_type in ("MatMul", "Gemm") and len(node.inputs) == 2:
                x, kernel = node.inputs
                if x is not None and name_of(kernel) in self.kernels:
                    self._multiply(node, x, name_of(kernel), rows)

    def _multiply(self, node: ir.Node, x: ir.Value, name: str, rows: dict[tuple[ir.Value, int], ir.Value]) -> None:
        make = NodeMaker(node, self._store)
        kernel = self.kernels[name] if node.attributes.get_int("transB", 0) else self.kernels[name].T
        count, width = kernel.shape
        block, blocks = _layout(width)
        if (x, width) not in rows:
            rows[x, width] = _guarded(make, x, width, block, blocks)
        codes = self._store(f"{name}.ternary", _packed(kernel, block, blocks))
        scale = self._store(f"{name}.ternary.scale", np.ones((count, blocks), "float32"))
        shape = {"K": block * blocks, "N": count, "bits": 2, "block_size": block, "accuracy_level": _INT8_COMPUTE}
        make.into(name_of(node.outputs[0]), "MatMulNBits", rows[x, width], codes, scale, domain=CONTRIB, **shape)
        make.replace()

    def _keep_in_8_bits(self, names: list[str]) -> None:
        """Stores kernels with other consumers in 8 bits; they are dequantized when the graph runs."""
        nodes = []
        for name in names:
            codes = self._store(f"{name}.int8_whole", self.kernels[name].astype("int8"))
            scale = self._store(f"{name}.int8_whole.scale", np.array(1, "float32"))
            old = self.graph.initializers.pop(name)
            nodes.append(make_node("DequantizeLinear", (codes, scale), name, f"{name}/to_float"))
            old.replace_all_uses_with(nodes[-1].outputs[0])
        put_first(self.graph, nodes[::-1])

    def _store(self, name: str, array: np.ndarray) -> ir.Value:
        stored = np.ascontiguousarray(array).reshape(np.shape(array))
        return self.graph.initializers.get(name) or add_constant(self.graph, name, stored)


def _layout(width: int) -> tuple[int, int]:
    """`(block, blocks)` with padding: the largest blocks, or for narrow rows those with the fewest bytes."""
    layouts = [(block, -(-width // (block - 1))) for block in _BLOCKS]
    if width >= _BLOCKS[0]:
        return layouts[0]
    return min(layouts, key=lambda layout: layout[1] * (layout[0] / 4 + 4))


def _real(width: int, blocks: int) -> int:
    """How many values of a row are in each block; the last block has the rest."""
    return -(-width // blocks)


def _guarded(make: NodeMaker, x: ir.Value, width: int, block: int, blocks: int) -> ir.Value:
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
