"""The base of the modes of quantization."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from keras_transformer.export.data.limits import LIMITS
from keras_transformer.export.data.short_repr import short_repr
from keras_transformer.export.quantization.former_calls import FormerCall

BLOCK_SIZE = 32


@dataclasses.dataclass(frozen=True, repr=False, kw_only=True)
class Quantization(metaclass=FormerCall):
    """Base of the modes of quantization: how weights, and in some modes activations, are quantized.

    Args:
        keep_float: tuple of patterns (`fnmatch`) of weights' paths, such as `"*/head/*"`, that stay float32.
        tolerance: largest change of the rows of an output on the probes, see
            `verification.quantized.outputs.row_change`; by the mode when None.

    Attributes:
        mode: the name of the mode, which stands for it where it has its default options.

    Example:

    >>> from keras_transformer.export import Int8
    >>> isinstance(Int8(), Quantization), Int8().mode
    (True, 'int8')
    """

    mode: ClassVar[str]

    keep_float: tuple[str, ...] = ()
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.keep_float, str):
            object.__setattr__(self, "keep_float", (self.keep_float,))
        if self.tolerance is None:
            object.__setattr__(self, "tolerance", LIMITS[self.mode].change)

    def __repr__(self) -> str:
        return short_repr(self, tolerance=LIMITS[self.mode].change)

    @property
    def weights_per_scale(self) -> int:
        """Weights of a table or a matrix in blocks that share a scale."""
        return BLOCK_SIZE

    @property
    def activation_bits(self) -> int:
        """Bits of the activations, where they are quantized."""
        return 8
