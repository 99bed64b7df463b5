"""Whether files have the integers and scales of `QuantizedWeights`, all of them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from keras_transformer.export.data.weights import Dequantized
from keras_transformer.export.errors import QuantizationError, WeightError
from keras_transformer.export.quantization.kept import blocks_of, is_kept_float, listed
from keras_transformer.export.quantization.known_blocks import Found
from keras_transformer.export.quantization.options import Quantization

# Graphs of standard operators multiply a scale with the step of the activations, by which the reader divides again.
_ROUNDING = 5e-7


class LearnedIntegers:
    """The weights that the files of one format must have as integers.

    Values and steps that are equal up to the rounding of float32 have the same integers.

    Args:
        format: name of the format, for errors.
        quantization: `Quantization` of the mode "learned".
        paths: the paths of the Keras variables that the graphs read; without any, all weights must be there.
    """

    def __init__(self, format: str, quantization: Quantization, paths: Collection[str] = ()) -> None:
        self._format, self._blocks = format, blocks_of(quantization)
        names = [name for name in self._blocks.names if not is_kept_float(name, quantization)]
        read = [name for name in names if name in paths]
        self._missing = dict.fromkeys(read or names)

    def check(self, name: str, expected: np.ndarray, found: Dequantized) -> None:
        """Compares the scales of one weight.

        Args:
            name: of the weight in the file.
            expected: its float values.
            found: `Dequantized` of the file, with these values.

        Raises:
            WeightError: a scale is another one.
        """
        if found.step is None:
            return
        known = self._blocks.find_weight(expected)
        if known is None or known.blocks is None:
            return
        if not _has_scales(known, np.broadcast_to(found.step, expected.shape)):
            raise WeightError(self._format, name, f"does not have the scales that were chosen for {known.name!r}")
        for each in self._blocks.names_of(expected):
            self._missing.pop(each, None)

    def check_all(self) -> None:
        """Refuses files that lack one.

        Raises:
            QuantizationError: names the weights.
        """
        if self._missing:
            raise QuantizationError(
                f"{self._format}: {listed(self._missing)}: the file does not have the integers of "
                f"{self._blocks.source} there. The float weight in it is another one, or an operator without integer "
                "kernels reads it: keep_float= leaves it in float"
            )


def _has_scales(known: Found, step: np.ndarray) -> bool:
    """Whether the step of each number of a weight is the scale of its block."""
    blocks = known.blocks
    assert blocks is not None
    count, number, size = blocks.codes.shape
    matrix = step.reshape((size * number, count) if known.is_transposed else (count, size * number))
    rows = (matrix.T if known.is_transposed else matrix).reshape(count, number, size)
    scale = blocks.scale[..., None].astype("float32")
    return bool((np.abs(rows - scale) <= np.float32(_ROUNDING) * scale).all())
