"""The weights of quantized ONNX files beside those of the float files, by the tensors that both graphs compute."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from keras_transformer.export.onnx.graph import all_nodes
from keras_transformer.export.onnx.weights.dequantize import ConstantReader
from keras_transformer.export.onnx.weights.product_weights import product_weight
from keras_transformer.export.verification.quantized_weight import Dequantized, WeightPair

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
    seen: set[Any] = set()
    for path in dict.fromkeys(files.values()):
        yield from _Pairs(ConstantReader(source / path), ConstantReader(directory / path), seen).all()


class _Pairs:
    """The pairs of one file: float, and quantized. `seen` has those of other files."""

    def __init__(self, before: ConstantReader, after: ConstantReader, seen: set[Any]) -> None:
        self._before, self._after, self._seen = before, after, seen

    def all(self) -> Iterator[WeightPair]:
        for node in all_nodes(self._before.model.graph):
            result = node.output[0] if node.output else ""
            if node.op_type in _PRODUCTS and self._is_weight(self._before.root(node.input[1])):
                yield from self._product(node, result)
            elif node.op_type == "Gather" and self._is_weight(node.input[0]):
                yield from self._pair(node.input[0], result, ConstantReader.value)
            elif node.op_type != "Transpose" or not self._is_weight(node.input[0]):
                # The consumers of a transposed weight are found by themselves.
                for name in filter(self._is_weight, node.input):
                    yield from self._pair(name, name, ConstantReader.value)

    def _product(self, node: Any, result: str) -> Iterator[WeightPair]:
        if product_weight(self._before, result) is None:
            yield from self._pair(node.input[1], node.input[1], ConstantReader.value)
            return
        yield from self._pair(self._before.root(node.input[1]), result, product_weight)
        for bias in filter(self._is_weight, node.input[2:]):
            yield from self._pair(bias, bias, ConstantReader.value)

    def _is_weight(self, name: str) -> bool:
        return self._before.is_weight(name)

    def _pair(
        self, name: str, tensor: str, read: Callable[[ConstantReader, str], Dequantized | None]
    ) -> Iterator[WeightPair]:
        key = (name, read, self._before.fingerprint(tensor), self._after.fingerprint(tensor))
        if key not in self._seen:
            self._seen.add(key)
            expected = read(self._before, tensor)
            if expected is not None:
                yield WeightPair(name, expected.values, read(self._after, tensor))
