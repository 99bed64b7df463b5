"""The weights of quantized ONNX files beside those of the float files, by the tensors that both graphs compute."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable, Hashable, Iterator

import onnx_ir as ir

from keras_transformer.export.data.weights import Dequantized, WeightPair
from keras_transformer.export.onnx.graph import all_nodes, name_of
from keras_transformer.export.onnx.weights.dequantize import ConstantReader
from keras_transformer.export.onnx.weights.files import read
from keras_transformer.export.onnx.weights.folding import FOLDED, fold
from keras_transformer.export.onnx.weights.product_weights import product_weight

_PRODUCTS = ("MatMul", "Gemm")


def weight_pairs(source: pathlib.Path, directory: pathlib.Path, files: dict[str, str]) -> Iterator[WeightPair]:
    """Yields each use of a weight in float files with its counterpart in the quantized ones.

    Products and lookups are found by the name of their result, other uses by the name of the weight.

    Args:
        source: folder with the float files.
        directory: folder with the quantized files.
        files: dict of signature name to the path of a file in both.

    Yields:
        `WeightPair`.
    """
    seen: set[Hashable] = set()
    for path in dict.fromkeys(files.values()):
        after = ConstantReader(directory / path)
        with tempfile.TemporaryDirectory() as folder:
            is_folded = FOLDED in read(directory / path).metadata_props
            floats = fold(source / path, pathlib.Path(folder)) if is_folded else source / path
            yield from _Pairs(ConstantReader(floats), after, seen).all()


class _Pairs:
    """The pairs of one file: float, and quantized. `seen` has those of other files."""

    def __init__(self, before: ConstantReader, after: ConstantReader, seen: set[Hashable]) -> None:
        self._before, self._after, self._seen = before, after, seen

    def all(self) -> Iterator[WeightPair]:
        for node in all_nodes(self._before.graph):
            weights = [each for each in node.inputs if each is not None and self._before.is_weight(each)]
            first = node.inputs[0] if node.inputs else None
            if node.op_type in _PRODUCTS and self._multiplies(node.inputs[1]):
                yield from self._product(node)
            elif node.op_type == "Gather" and first in weights:
                yield from self._pair(first, node.outputs[0], ConstantReader.value)
            elif node.op_type != "Transpose" or first not in weights:
                # The consumers of a transposed weight are found by themselves.
                for weight in weights:
                    yield from self._pair(weight, weight, ConstantReader.value)

    def _multiplies(self, value: ir.Value | None) -> bool:
        return value is not None and self._before.is_weight(self._before.root(value))

    def _product(self, node: ir.Node) -> Iterator[WeightPair]:
        weight, result = node.inputs[1], node.outputs[0]
        if weight is None or product_weight(self._before, result) is None:
            yield from self._pair(weight, weight, ConstantReader.value)
            return
        yield from self._pair(self._before.root(weight), result, product_weight)
        for bias in filter(self._before.is_weight, node.inputs[2:]):
            yield from self._pair(bias, bias, ConstantReader.value)

    def _pair(
        self,
        weight: ir.Value | None,
        tensor: ir.Value | None,
        read: Callable[[ConstantReader, ir.Value | None], Dequantized | None],
    ) -> Iterator[WeightPair]:
        other = self._after.find(name_of(tensor))
        key = (name_of(weight), read, self._before.fingerprint(tensor), self._after.fingerprint(other))
        if key not in self._seen:
            self._seen.add(key)
            expected = read(self._before, tensor)
            if expected is not None:
                yield WeightPair(name_of(weight), expected.values, read(self._after, other))
