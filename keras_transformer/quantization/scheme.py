"""Schemes: how many bits a weight has, and which of its numbers share a scale."""

from __future__ import annotations

import dataclasses

import numpy as np

from keras_transformer.quantization.errors import WeightQuantizationError

BITS = (2, 3, 4, 8)
BLOCK_SIZES = (32, 64, 128, 256)


@dataclasses.dataclass(frozen=True)
class WeightScheme:
    """The integers of a weight: `w = scale * q`, or `scale * q + minimum`, with a scale for each block of a row.

    A row is what one output of a product is computed from: a column of the kernel of `Dense`. Scales of blocks have half
    precision, rounded to 8 significant bits, which the kernels of every runtime read exactly; those of whole rows have
    float32.

    Args:
        bits: int, 2, 3, 4 or 8. Default 4. In fewer than 8 bits q is from -2^(bits - 1) to 2^(bits - 1) - 1, in 8 bits from
            -127 to 127. Weights of 2 and 3 bits are stored in 4.
        block_size: int, 32, 64, 128 or 256: numbers of a row that share a scale; None: all of them. Default 32.
        has_minimum: bool. Whether each block has a minimum too, and q begins with 0; only with blocks of at most 4 bits.
            Default False.

    Raises:
        WeightQuantizationError: a combination that no runtime has.

    Example:

    >>> WeightScheme(bits=4).lowest, WeightScheme(bits=8, block_size=None).lowest
    (-8, -127)
    """

    bits: int = 4
    block_size: int | None = 32
    has_minimum: bool = False

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise WeightQuantizationError(f"bits must be one of {BITS}. Received: {self.bits!r}")
        if self.block_size is not None and self.block_size not in BLOCK_SIZES:
            raise WeightQuantizationError(
                f"block_size must be one of {BLOCK_SIZES}, or None for a scale for each row. Received: {self.block_size!r}"
            )
        if self.has_minimum and (self.block_size is None or self.bits == 8):
            raise WeightQuantizationError("has_minimum needs blocks of at most 4 bits")

    @property
    def levels(self) -> int:
        """The number of integers."""
        return self.highest - self.lowest + 1

    @property
    def lowest(self) -> int:
        """The least integer."""
        if self.has_minimum:
            return 0
        return -127 if self.bits == 8 else -(1 << self.bits - 1)

    @property
    def highest(self) -> int:
        """The largest integer."""
        return self.lowest + (254 if self.bits == 8 else (1 << self.bits) - 1)

    @property
    def stored_bits(self) -> int:
        """The bits of the smallest integers of the runtimes that q fits into: 4 or 8."""
        return max(self.bits, 4)

    @property
    def zero(self) -> int:
        """The code of 0."""
        return 0 if self.has_minimum else 1 << self.stored_bits - 1

    def round_scale(self, scale: np.ndarray) -> np.ndarray:
        """Scales, float32, with the precision that files have; none is zero.

        Example:

        >>> WeightScheme().round_scale(np.array([0.3, 0.0])).tolist()
        [0.30078125, 2.384185791015625e-07]
        """
        scale = np.asarray(scale, "float32")
        if self.block_size is None:
            return np.where(scale == 0, np.float32(1), scale)
        # Subnormal halves have fewer bits: rounding to half precision comes last.
        least = np.float32(2.0**-22)
        scale = np.where(np.abs(scale) < least, least, scale)
        bits = scale.view("uint32")
        rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view("float32")
        return rounded.astype("float16").astype("float32")
