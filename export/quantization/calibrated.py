"""The modes whose activations are integers of ranges that are found in calibration data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from keras_transformer.export.errors import QuantizationError
from keras_transformer.export.quantization.mode import Quantization
from keras_transformer.export.quantization.ranges import RANGES
from keras_transformer.export.remedies import Remedy

if TYPE_CHECKING:
    import keras

    from keras_transformer.export.quantization.calibration_data import Batch, Calibration
    from keras_transformer.export.quantization.learned_ranges import LearnedRanges

# What inputs and outputs may be, by the bits of the activations.
_ENDS = {8: ("float32", "int8", "uint8"), 16: ("float32", "int16")}


@dataclasses.dataclass(frozen=True, repr=False)
class Int8Static(Quantization):
    """Weights of products in 8 bits, and activations that are quantized by ranges found in data; the rest stays float.

    Args:
        calibration: data, labels or not: one batch, or batches, in any of the forms that `fit` takes, or the function
            that TFLite calls a representative dataset; see `quantization.observation.batches.named_batches`.
        ranges: how the range of an activation is found: "mse" (default) for the least expected squared error,
            "percentile" to leave out 1 in 100,000 values on each side, "entropy" for the least divergence of the values'
            distribution, "minmax" for the extremes, "moving_average" for the mean of those of all batches.
        activation_bits: int, 8 or 16: of the activations. With 16, which some NPUs have, ranges are symmetric in TFLite.
            Default 8.
        keep_float, tolerance: see `Quantization`.

    Raises:
        QuantizationError: there is no calibration, no such way to find ranges, or other bits.

    Example:

    >>> Int8Static([{"x": [[1.0, 2.0]]}], ranges="minmax")
    Int8Static(calibration=..., ranges='minmax')
    """

    mode: ClassVar[str] = "int8_static"

    calibration: Calibration | None = dataclasses.field(default=None, repr=False)
    ranges: str = "mse"
    activation_bits: int = 8  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self)


@dataclasses.dataclass(frozen=True, repr=False)
class FullInt8(Quantization):
    """Every operator in integers: weights of any size in 8 bits by channel, activations in 8 or 16 bits by tensor.

    What has no integer kernel in a runtime stays float, and is named in the report with its layer. Files are judged on the
    calibration data: what is outside their ranges is cut off.

    Args:
        calibration: see `Int8Static`.
        ranges: see `Int8Static`. Default "mse".
        activation_bits: int, 8 or 16. With 16, ranges are symmetric in TFLite and biases have 64 bits: nearly the accuracy
            of floats, for sound and sensors. ONNX Runtime has no such kernels on a CPU: it computes with floats that are
            rounded to 16 bits, as NPUs round them. Default 8.
        input_type: "float32" (default), "int8" or "uint8", or with activations of 16 bits "int16": what float inputs are in
            a TFLite file. A loaded bundle takes floats in any case.
        output_type: the same of float outputs.
        trained: model of `training.quantization_aware(model, "full_int8")`, whose ranges the files have, and whose outputs
            they are compared with; `export` sets it where it is given such a model. Tensors inside of layers have measured
            ranges.
        keep_float, tolerance: see `Quantization`.

    Raises:
        QuantizationError: there is no calibration, no such way to find ranges, other bits, or no such type.

    Example:

    >>> FullInt8([{"x": [[1.0, 2.0]]}], input_type="int8")
    FullInt8(calibration=..., input_type='int8')
    """

    mode: ClassVar[str] = "full_int8"

    calibration: Calibration | None = dataclasses.field(default=None, repr=False)
    ranges: str = "mse"
    activation_bits: int = 8  # pyright: ignore[reportIncompatibleMethodOverride]
    input_type: str = "float32"
    output_type: str = "float32"
    trained: keras.Model | LearnedRanges | None = dataclasses.field(default=None, repr=False)

    @property
    def learned(self) -> LearnedRanges | None:
        """The ranges of the trained model, where they are measured already: see `QuantizedCopies`."""
        return cast("LearnedRanges | None", self.trained)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self)
        for name, value in {"input_type": self.input_type, "output_type": self.output_type}.items():
            ends = _ENDS[self.activation_bits]
            if value not in ends:
                raise QuantizationError(f"{name} must be one of {', '.join(ends)}. Received: {value!r}")


def batches_of(quantization: Int8Static | FullInt8) -> list[Batch]:
    """The calibration data of a mode, where they are batches already: see `calibration_data.calibration_batches`."""
    return list(cast("Iterable[Batch]", quantization.calibration or ()))


def _check(quantization: Int8Static | FullInt8) -> None:
    """Refuses a mode without data, or with an unknown way to find ranges or other bits."""
    if quantization.calibration is None:
        raise QuantizationError(
            f"{quantization.mode} needs calibration", Remedy.CALIBRATION, name=type(quantization).__name__
        )
    if quantization.ranges not in RANGES:
        raise QuantizationError(f"ranges must be one of {', '.join(RANGES)}. Received: {quantization.ranges!r}")
    if quantization.activation_bits not in (8, 16):
        raise QuantizationError(f"activation_bits must be 8 or 16. Received: {quantization.activation_bits!r}")
