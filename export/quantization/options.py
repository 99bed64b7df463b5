"""The modes of quantization, each with its own options."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from keras_transformer.export.data.limits import SMALL
from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.calibrated import FullInt8, Int8Static
from keras_transformer.export.quantization.mode import BLOCK_SIZE, Quantization
from keras_transformer.export.remedies import Remedy
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from keras_transformer.quantization import QuantizedWeights

FLOAT = "float32"


@dataclasses.dataclass(frozen=True, repr=False)
class Float16(Quantization):
    """Weights in half precision.

    Args:
        keep_float, tolerance: see `Quantization`.

    Example:

    >>> Float16().tolerance
    0.02
    """

    mode: ClassVar[str] = "fp16"


@dataclasses.dataclass(frozen=True, repr=False)
class Int8(Quantization):
    """Weights in 8 bits with a scale for each channel; activations are quantized as they come.

    Args:
        keep_float, tolerance: see `Quantization`.

    Example:

    >>> Int8(keep_float=("*/token_embedding/*",)).tolerance
    0.3
    """

    mode: ClassVar[str] = "int8"


@dataclasses.dataclass(frozen=True, repr=False)
class WeightInt8(Quantization):
    """Weights alone in 8 bits, with a scale for each channel.

    Args:
        keep_float, tolerance: see `Quantization`.

    Example:

    >>> WeightInt8().mode
    'weight_int8'
    """

    mode: ClassVar[str] = "weight_int8"


@dataclasses.dataclass(frozen=True, repr=False)
class WeightInt4(Quantization):
    """Weights alone in 4 bits, with a scale for each block of them.

    Args:
        block_size: int, 16, 32, 64, 128 or 256: weights that share a scale. Default 32.
        keep_float, tolerance: see `Quantization`.

    Raises:
        QuantizationError: no runtime has blocks of this size.

    Example:

    >>> WeightInt4(64)
    WeightInt4(block_size=64)
    """

    mode: ClassVar[str] = "weight_int4"

    block_size: int = BLOCK_SIZE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block_size not in (16, 32, 64, 128, 256):
            raise QuantizationError(f"block_size must be 16, 32, 64, 128 or 256, not {self.block_size}")

    @property
    def weights_per_scale(self) -> int:
        return self.block_size


@dataclasses.dataclass(frozen=True, repr=False)
class Gguf(Quantization):
    """The integers and scales of the GGUF file that a model was read from, without rounding.

    Args:
        file: str or path; the file that `from_gguf` read when None.
        keep_float, tolerance: see `Quantization`.

    Example:

    >>> Gguf("SmolLM2-135M-Instruct.Q4_1.gguf", keep_float="*/query/kernel").keep_float
    ('*/query/kernel',)
    """

    mode: ClassVar[str] = "gguf"

    file: Path | None = None

    @property
    def source(self) -> Path | None:
        """What has the integers and scales."""
        return self.file


@dataclasses.dataclass(frozen=True, repr=False)
class Learned(Quantization):
    """The integers and scales that `quantization.quantize_weights`, or training, chose, without rounding.

    Args:
        source: `QuantizedWeights`, or the path of a file of `QuantizedWeights.save`; `model.quantized_weights` when None.
        keep_float, tolerance: see `Quantization`.

    Example:

    >>> Learned("weights.safetensors").source
    'weights.safetensors'
    """

    mode: ClassVar[str] = "learned"

    source: QuantizedWeights | Path | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class Ternary(Quantization):
    """The kernels of a BitNet model in 2 bits, without loss, and nothing else; `export` takes it by itself for such a model.

    Args:
        keep_float, tolerance: see `Quantization`.

    Example:

    >>> Ternary().tolerance
    0.1
    """

    mode: ClassVar[str] = "ternary"


CLASSES: dict[str, type[Quantization]] = {
    each.mode: each for each in (Float16, Int8, Int8Static, FullInt8, WeightInt8, WeightInt4, Gguf, Learned, Ternary)
}
MODES = tuple(CLASSES)
# The names of all precisions, and of the folders of bundles in several.
PRECISIONS = (FLOAT, *MODES)
GGUF, LEARNED = Gguf.mode, Learned.mode
# The modes that keep integers and scales which the weights were made of, instead of rounding.
KEPT = (GGUF, LEARNED)


def matches(names: Iterable[str], patterns: Sequence[str]) -> set[str]:
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
            known = ", ".join(sorted(names)[:8]) or f"there is none of {SMALL:,} numbers"
            message = f"keep_float '{pattern}' matches none of the weights: {known}"
            raise QuantizationError(message, Remedy.WEIGHTS, weight=min(names, default="*"))
    return set().union(*found.values())


def literal(name: str) -> str:
    """A pattern that matches only this name.

    Example:

    >>> literal("block[0]/kernel")
    'block[[]0]/kernel'
    """
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
