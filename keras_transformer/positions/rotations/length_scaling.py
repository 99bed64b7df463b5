"""Scalings of rotary embeddings that depend on the length of the sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_transformer.positions.rotations.rotary_scaling import RotaryScaling, rotary_rates
from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class DynamicNTKScaling(RotaryScaling):
    """Dynamic NTK scaling: `NTKScaling` by the factor `s L / L_0 - (s - 1)` for a sequence of L > `L_0` tokens.

    Sequences of up to `L_0 = original_max_sequence_length` tokens are not scaled. Cached keys keep the rates of the length
    at which they were read, so that generation beyond `L_0` would depend on its steps: `Rotary` is given `L_0` as its
    `max_sequence_length`, which limits generation.

    Args:
        factor: float >= 1. s.
        original_max_sequence_length: int >= 1. `L_0`: the length that the model was trained on.

    Raises:
        ValueError: `factor` below 1; fewer than 4 rotated features.

    Example:

    >>> scaling = DynamicNTKScaling(2.0, original_max_sequence_length=8)
    >>> (3 * scaling.stretch(np.array([16]), 4)).numpy().round(3).tolist()
    [[3.0, 1.0]]

    Reference: Peng et al., YaRN, arXiv 2309.00071, section 3.3, with the factor of transformers; there the length is that of
    the longest row of a batch, here that of each row.
    """

    def __init__(self, factor: float = 2.0, original_max_sequence_length: int = 4096) -> None:
        super().__init__(factor)
        self.original_max_sequence_length = original_max_sequence_length

    def rates(self, width: int, max_wavelength: float) -> np.ndarray:
        return rotary_rates(width, max_wavelength)

    def stretch(self, length: Tensor, width: int) -> Tensor:
        if width < 4:
            raise ValueError(f"Dynamic NTK scaling needs at least 4 rotated features. Received: {width}")
        length = ops.cast(ops.expand_dims(length, -1), "float32")
        factor = self.factor * length / self.original_max_sequence_length - (self.factor - 1)
        exponents = (np.arange(0, width, 2) / (width - 2)).astype("float32")
        return ops.exp(-ops.log(ops.maximum(factor, 1.0)) * exponents)

    def get_config(self) -> Config:
        return {**super().get_config(), "original_max_sequence_length": self.original_max_sequence_length}


@serializable
class LongRoPEScaling(RotaryScaling):
    """LongRoPE scaling: a searched factor for each pair of features, one set for short and one for long sequences.

    The rate of pair i is divided by `short_factor[i]` in sequences of up to `original_max_sequence_length` tokens and by
    `long_factor[i]` in longer ones. Rotated queries and keys are multiplied by `magnitude` in both. As with
    `DynamicNTKScaling`, cached keys keep their rates, so that generation should not pass the original length.

    Args:
        short_factor: a factor > 0 for each pair, or a single one for all.
        long_factor: as `short_factor`.
        factor: float >= 1. Factor of the sequence length, from which `magnitude` follows.
        original_max_sequence_length: int >= 2. The length that the model was trained on.
        magnitude: float, or None for `sqrt(1 + ln(factor) / ln(original_max_sequence_length))`.

    Raises:
        ValueError: `factor` below 1, a factor that is not positive, or a number of them that is not that of the pairs.

    Example:

    >>> scaling = LongRoPEScaling([1.0, 2.0], [1.0, 8.0], factor=4.0, original_max_sequence_length=16)
    >>> scaling.stretch(np.array([16, 17]), 4).numpy().tolist(), round(scaling.magnitude, 4)
    ([[1.0, 0.5], [1.0, 0.125]], 1.2247)

    Reference: Ding et al., LongRoPE, arXiv 2402.13753, section 3; the magnitude is that of the code of Phi-3.
    """

    def __init__(
        self,
        short_factor: Sequence[float] = (1.0,),
        long_factor: Sequence[float] = (1.0,),
        factor: float = 1.0,
        original_max_sequence_length: int = 4096,
        magnitude: float | None = None,
    ) -> None:
        super().__init__(factor)
        self.short_factor = [float(each) for each in short_factor]
        self.long_factor = [float(each) for each in long_factor]
        if not all(each > 0 for each in (*self.short_factor, *self.long_factor)):
            raise ValueError("short_factor and long_factor must be positive.")
        self.original_max_sequence_length = original_max_sequence_length
        if magnitude is None:
            magnitude = math.sqrt(1 + math.log(factor) / math.log(original_max_sequence_length))
        self.magnitude = float(magnitude)

    def rates(self, width: int, max_wavelength: float) -> np.ndarray:
        return rotary_rates(width, max_wavelength)

    def stretch(self, length: Tensor, width: int) -> Tensor:
        for name, factors in (("short_factor", self.short_factor), ("long_factor", self.long_factor)):
            if len(factors) not in (1, width // 2):
                raise ValueError(f"{name} must have a factor for each of {width // 2} pairs. Received: {len(factors)}")
        short, long = (
            np.broadcast_to(1 / np.array(each), (width // 2,)).astype("float32")
            for each in (self.short_factor, self.long_factor)
        )
        is_long = ops.expand_dims(length, -1) > self.original_max_sequence_length
        return ops.where(is_long, ops.convert_to_tensor(long), ops.convert_to_tensor(short))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "short_factor": self.short_factor,
            "long_factor": self.long_factor,
            "original_max_sequence_length": self.original_max_sequence_length,
            "magnitude": self.magnitude,
        }
