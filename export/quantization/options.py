"""Options of quantization: the mode, the weights that stay float, and the tolerance."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from keras_transformer.export.data.limits import LIMITS
from keras_transformer.export.errors import QuantizationError, suggestion
from keras_transformer.export.quantization.ranges import RANGES
from keras_transformer.utils.types import ArrayLike, Path

if TYPE_CHECKING:
    from keras_transformer.quantization import QuantizedWeights

MODES = tuple(LIMITS)

FLOAT = "float32"
GGUF = "gguf"
LEARNED = "learned"
# The names of all precisions, and of the folders of bundles in several.
PRECISIONS = (FLOAT, *MODES)
# The modes that keep integers and scales which the weights were made of, instead of rounding.
KEPT = (GGUF, LEARNED)


@dataclasses.dataclass(frozen=True)
class Quantization:
    """How weights, and in some modes activations, are quantized.

    Args:
        mode: "fp16": weights in half precision; "int8": weights in 8 bits with a scale for each channel, activations
            quantized as they come; "int8_static": activations quantized by ranges found in `calibration`; "weight_int8" and
            "weight_int4": weights alone; "gguf": the integers and scales of the GGUF file that the model was read from;
            "learned": those of `QuantizedWeights`, which `quantization.quantize_weights` or training chose; "ternary": the
            kernels of a BitNet model in 2 bits, without any loss, and nothing else, which is what `export` does with such a
            model by itself.
        calibration: iterable of dicts of arrays by input name; for "int8_static".
        keep_float: tuple of patterns (`fnmatch`) of weights' paths, such as `"*/head/*"`, that stay float32.
        block_size: int, 16, 32, 64, 128 or 256: weights that share a scale in "weight_int4". Default 32.
        tolerance: largest change of the rows of an output on the probes, see
            `verification.quantized.outputs.row_change`; by the mode when None.
        file: str or path: the GGUF file of "gguf", the one that `from_gguf` read when None; the file of
            `QuantizedWeights.save` of "learned".
        ranges: how "int8_static" finds the range of an activation: "mse" (default) for the least expected squared error,
            "percentile" to leave out 1 in 100,000 values on each side, "minmax" for the extremes.
        activation_bits: int, 8 or 16: of the activations of "int8_static". With 16, which some NPUs have, ranges are
            symmetric in TFLite. Default 8.
        weights: `QuantizedWeights` of "learned" without a file: `model.quantized_weights` when None.

    Raises:
        QuantizationError: an unknown mode or way to find ranges, a block size that no runtime has, or `int8_static` without
            calibration.

    Example:

    >>> Quantization("int8", keep_float=("*/token_embedding/*",)).tolerance
    0.3
    """

    mode: str
    calibration: Iterable[Mapping[str, ArrayLike]] | None = None
    keep_float: tuple[str, ...] = ()
    block_size: int = 32
    tolerance: float | None = None
    file: Path | None = None
    ranges: str = "mse"
    activation_bits: int = 8
    weights: QuantizedWeights | None = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            advice = suggestion(self.mode, MODES)
            raise QuantizationError(f"unknown quantization {self.mode!r}; valid: {', '.join(MODES)}{advice}")
        if self.block_size not in (16, 32, 64, 128, 256):
            raise QuantizationError(f"block_size must be 16, 32, 64, 128 or 256, not {self.block_size}")
        if self.ranges not in RANGES:
            raise QuantizationError(f"ranges must be one of {', '.join(RANGES)}. Received: {self.ranges!r}")
        if self.activation_bits not in (8, 16) or (self.activation_bits == 16 and self.mode != "int8_static"):
            raise QuantizationError(
                f"activation_bits must be 8, or 16 in 'int8_static'. Received: {self.activation_bits!r} in {self.mode!r}"
            )
        if self.mode == "int8_static" and self.calibration is None:
            raise QuantizationError("int8_static needs calibration: an iterable of dicts of arrays by input name")
        if self.file is not None and self.mode not in KEPT:
            names = " and ".join(map(repr, KEPT))
            raise QuantizationError(f"file is for the modes {names}, not {self.mode!r}. Received: {self.file!r}")
        if self.weights is not None and (self.mode != LEARNED or self.file is not None):
            raise QuantizationError(f"weights are for the mode {LEARNED!r} without a file")
        if isinstance(self.keep_float, str):
            object.__setattr__(self, "keep_float", (self.keep_float,))
        if self.tolerance is None:
            object.__setattr__(self, "tolerance", LIMITS[self.mode].change)

    @classmethod
    def of(cls, quantize: str | Quantization | None) -> Quantization | None:
        """A `Quantization` from the name of a mode; a `Quantization`, or None, is returned as it is.

        Raises:
            QuantizationError: it is neither, or an unknown mode.
        """
        if quantize is not None and not isinstance(quantize, (str, Quantization)):
            raise QuantizationError(f"quantize must be the name of a mode or a Quantization. Received: {quantize!r}")
        return cls(quantize) if isinstance(quantize, str) else quantize

    def of_file(self, file: Path) -> Quantization:
        """The same with another `file`."""
        return dataclasses.replace(self, file=file)

    def of_weights(self, weights: QuantizedWeights) -> Quantization:
        """The same with other `weights`."""
        return dataclasses.replace(self, weights=weights)


def precision_of(quantization: Quantization | None) -> str:
    """The name of a precision: that of the mode, or "float32"."""
    return FLOAT if quantization is None else quantization.mode


def precisions_of(quantize: Sequence[str | Quantization | None]) -> list[Quantization | None]:
    """A `Quantization` for each of several precisions, None for "float32" or None.

    Raises:
        QuantizationError: there is none, one occurs twice, or one is unknown.

    Example:

    >>> [precision_of(each) for each in precisions_of(["float32", "int8"])]
    ['float32', 'int8']
    """
    found = [None if each is None or each == FLOAT else Quantization.of(each) for each in quantize]
    names = [precision_of(each) for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise QuantizationError(f"quantize has {twice} twice: each precision has a folder of its own, named after it")
    if not found:
        raise QuantizationError(f"quantize must name a precision: {', '.join(PRECISIONS)}")
    return found


def matches(names: Iterable[str], patterns: Iterable[str]) -> set[str]:
    """The names that match at least one of the patterns.

    Raises:
        QuantizationError: a pattern matches none of them.

    Example:

    >>> matches(["head/kernel", "block_0/query/kernel"], ["head/*"])
    {'head/kernel'}
    """
    names = list(names)
    found = {pattern: set(fnmatch.filter(names, pattern)) for pattern in patterns}
    for pattern, each in found.items():
        if not each:
            raise QuantizationError(
                f"keep_float '{pattern}' matches none of the weights: {', '.join(sorted(names)[:8])}"
            )
    return set().union(*found.values())
