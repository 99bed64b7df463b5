"""The blocks of `QuantizedWeights`, found by their values."""

from __future__ import annotations

import numpy as np

from keras_transformer.export.quantization.known_blocks import KnownBlocks
from keras_transformer.quantization.blocks import Blocks
from keras_transformer.quantization.quantized_weights import QuantizedWeights


class LearnedBlocks(KnownBlocks):
    """The matrices of `QuantizedWeights` by their rows.

    Args:
        weights: `QuantizedWeights`.
        source: what has them, for errors.

    Example:

    >>> from keras_transformer.quantization import WeightScheme
    >>> from keras_transformer.quantization.rounding import round_rows
    >>> rows = round_rows(np.eye(4, 32), WeightScheme(8, None))
    >>> known = LearnedBlocks(QuantizedWeights({"model/dense/kernel": rows}), "the weights")
    >>> known.names_of(rows.values.T), known.kind("model/dense/kernel")
    (['model/dense/kernel'], '8 bits, a scale for each row')
    """

    def __init__(self, weights: QuantizedWeights, source: str) -> None:
        self._weights = weights
        super().__init__(source, ((name, blocks.values) for name, blocks in weights.items()))

    def kind(self, name: str) -> str:
        """The bits and the numbers that share a scale."""
        blocks = self._weights[name]
        _, number, size = blocks.codes.shape
        shared = "a scale for each row" if number == 1 else f"blocks of {size}"
        return f"{blocks.bits} bits, {shared}" + ("" if blocks.minimum is None else " with minima")

    def input_range(self, name: str) -> float | None:
        return self._weights.input_ranges.get(name)

    def has_blocks(self, name: str) -> bool:
        return True

    def _blocks_of(self, name: str, indices: np.ndarray) -> Blocks:
        return self._weights[name].rows(indices)
