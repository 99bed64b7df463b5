"""The ranges of activations that a model has learned, and what it computes with them.

`quantization_aware(model, "full_int8")` trains the ranges of what its layers read and return. The tensors of a file are
found by their numbers on the calibration data, as weights are: in any order of their axes, whatever their names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.ranges import SAME, RangeObserver

# What a float file and the model without its rounding may differ by, as a share of the largest output.
_ROUNDING = 1e-3


@dataclasses.dataclass(frozen=True)
class LearnedRanges:
    """The ranges of a trained model, by the numbers of the tensors on calibration data.

    Args:
        ranges: for each tensor, a `RangeObserver` of its numbers, and its least and largest number.
        outputs: for each batch, what the model computes with its rounding, by name.
        floats: the same without the rounding of activations.
    """

    ranges: Sequence[tuple[RangeObserver, tuple[float, float]]]
    outputs: Sequence[Mapping[str, np.ndarray]]
    floats: Sequence[Mapping[str, np.ndarray]]

    def range_of(self, observer: RangeObserver) -> tuple[float, float] | None:
        """The range that was learned of a tensor with the numbers that an observer has seen; None if there is none.

        Files may have the numbers times a factor, such as that of queries, which is folded into their projection.
        """
        factors = ((observer.factor_of(known), ends) for known, ends in self.ranges)
        found = [(factor, ends) for factor, ends in factors if factor is not None]
        if not found:
            return None
        factor, (least, largest) = min(found, key=lambda each: abs(each[0] - 1))
        return (least, largest) if abs(factor - 1) < SAME else (factor * least, factor * largest)

    def expected(self, number: int, floats: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What files compute of a batch, where the float file is that of the model.

        Args:
            number: of the batch.
            floats: what the float file computes of it.

        Raises:
            QuantizationError: the float file computes something else than the model without its rounding.
        """
        for name, expected in self.floats[number].items():
            scale = float(np.abs(expected).max(initial=0.0)) or 1.0
            if not np.allclose(floats[name], expected, rtol=0, atol=_ROUNDING * scale):
                raise QuantizationError(f"{name!r} of the float file is not what the trained model computes")
        return dict(self.outputs[number])


def range_of(
    observer: RangeObserver, method: str, bits: int = 8, learned: LearnedRanges | None = None
) -> tuple[float, float]:
    """The range of a tensor: the one that was learned, or that of a method.

    Args:
        observer: `RangeObserver` of the tensor.
        method: one of `ranges.RANGES`.
        bits: of the integers.
        learned: `LearnedRanges`, or None.
    """
    found = None if learned is None else learned.range_of(observer)
    return observer.range(method, bits) if found is None else found
