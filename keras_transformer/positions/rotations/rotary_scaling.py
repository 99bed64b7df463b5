"""Scaling of rotary embeddings for sequences longer than those of training.

A scaling changes the rate of each pair of features, in angle per position, and may scale the rotated features.
"""

from __future__ import annotations

import math

import numpy as np

from keras_transformer.utils.serialization import Configured, serializable
from keras_transformer.utils.types import Config, Tensor


class RotaryScaling(Configured):
    """Base class of rotary scalings: `rates` and, if attention has a temperature, `magnitude`.

    Attributes:
        magnitude: float. Factor of rotated queries and keys.

    Example:

    >>> class Halved(RotaryScaling):
    ...     def rates(self, width, max_wavelength):
    ...         return rotary_rates(width, max_wavelength) / 2
    >>> Halved(factor=2.0).rates(4, 100.0).tolist()
    [0.5, 0.05]
    """

    magnitude: float = 1.0

    def __init__(self, factor: float) -> None:
        if not factor >= 1:
            raise ValueError(f"factor must be at least 1. Received: {factor}")
        self.factor = float(factor)

    def rates(self, width: int, max_wavelength: float) -> np.ndarray:
        """Returns the rates, float64 `(width / 2,)`, for `width` rotated features."""
        raise NotImplementedError

    def stretch(self, length: Tensor, width: int) -> Tensor | None:
        """Returns factors of the rates that depend on the length of each sequence; None for none.

        Args:
            length: int tensor: the number of tokens of each sequence, of any shape.
            width: int. The number of rotated features.

        Returns:
            float32 `(*length.shape, width / 2)`, or None.
        """
        return None

    def get_config(self) -> Config:
        return {"factor": self.factor}


@serializable
class LinearScaling(RotaryScaling):
    """Position interpolation: positions are divided by `factor`.

    Args:
        factor: float >= 1. Factor of the sequence length.

    Raises:
        ValueError: `factor` below 1.

    Example:

    >>> LinearScaling(4.0).rates(2, 10000.0).tolist()
    [0.25]

    Reference: Chen et al., Extending Context Window of Large Language Models via Positional Interpolation,
    arXiv 2306.15595, equation 4.
    """

    def __init__(self, factor: float = 2.0) -> None:
        super().__init__(factor)

    def rates(self, width: int, max_wavelength: float) -> np.ndarray:
        return rotary_rates(width, max_wavelength) / self.factor


@serializable
class NTKScaling(RotaryScaling):
    """NTK-aware scaling: `max_wavelength` grows by `factor^(H / (H - 2))`, so that fast pairs keep their rates.

    `DynamicNTKScaling` takes the factor from the length of the sequence. Its cached keys have other rates than new
    queries; the fixed factor of the longest sequence avoids that.

    Args:
        factor: float >= 1. Factor of the sequence length: the slowest pair rotates as with `LinearScaling`.

    Raises:
        ValueError: `factor` below 1; fewer than 4 rotated features.

    Example:

    >>> NTKScaling(4.0).rates(4, 10000.0).round(4).tolist()
    [1.0, 0.0025]

    Reference: Peng et al., YaRN, arXiv 2309.00071, definition 1.
    """

    def __init__(self, factor: float = 2.0) -> None:
        super().__init__(factor)

    def rates(self, width: int, max_wavelength: float) -> np.ndarray:
        if width < 4:
            raise ValueError(f"NTK scaling needs at least 4 rotated features. Received: {width}")
        return rotary_rates(width, max_wavelength * self.factor ** (width / (width - 2)))


@serializable
class YaRNScaling(RotaryScaling):
    """YaRN scaling: slow pairs are interpolated, fast ones kept, those between blended; attention has a temperature.

    A pair with r rotations over `original_max_sequence_length` has the rate `(1 - γ(r)) θ / factor + γ(r) θ`, where γ
    increases from 0 to 1 for the pairs between `beta_slow` and `beta_fast` rotations. Rotated queries and keys are
    multiplied by `magnitude`.

    Args:
        factor: float >= 1. Factor of the sequence length.
        original_max_sequence_length: int >= 1. The length that the model was trained on.
        beta_fast: float. Pairs with more rotations are kept.
        beta_slow: float, below `beta_fast`. Pairs with fewer rotations are interpolated.
        magnitude: float, or None for `0.1 ln(factor) + 1`.
        truncate: bool. Whether the blend starts and ends at integer pair indices.

    Raises:
        ValueError: `factor` below 1; `beta_slow` not below `beta_fast`.

    Example:

    >>> scaling = YaRNScaling(4.0, original_max_sequence_length=32)
    >>> scaling.rates(4, 10000.0).round(4).tolist(), round(scaling.magnitude, 4)
    ([1.0, 0.0025], 1.1386)

    Reference: Peng et al., YaRN, arXiv 2309.00071, definition 2 and equation 22. Deviation: γ is linear in the index
    of the pair, as in the authors' code and all checkpoints, not in the number of rotations.
    """

    def __init__(
        self,
        factor: float = 2.0,
        original_max_sequence_length: int = 4096,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        magnitude: float | None = None,
        truncate: bool = True,
    ) -> None:
        super().__init__(factor)
        if not 0 < beta_slow < beta_fast:
            raise ValueError(f"beta_slow must be in (0, beta_fast={beta_fast}). Received: {beta_slow}")
        self.original_max_sequence_length = original_max_sequence_length
        self.beta_fast = beta_fast
        self.beta_slow = beta_slow
        self.magnitude = 0.1 * math.log(factor) + 1.0 if magnitude is None else float(magnitude)
        self.truncate = truncate

    def rates(self, width: int, max_wavelength: float) -> np.ndarray:
        first, last = (self._pair(turns, width, max_wavelength) for turns in (self.beta_fast, self.beta_slow))
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, width - 1)
        last = first + 0.001 if first == last else last
        slow = np.clip((np.arange(width // 2) - first) / (last - first), 0, 1)
        kept = rotary_rates(width, max_wavelength)
        return kept * (1 - slow) + kept / self.factor * slow

    def _pair(self, turns, width, max_wavelength):
        """Returns the fractional index of the pair with `turns` rotations over the original length."""
        wavelength = self.original_max_sequence_length / (2 * math.pi * turns)
        return width * math.log(wavelength) / (2 * math.log(max_wavelength))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "original_max_sequence_length": self.original_max_sequence_length,
            "beta_fast": self.beta_fast,
            "beta_slow": self.beta_slow,
            "magnitude": self.magnitude,
            "truncate": self.truncate,
        }


@serializable
class Llama3Scaling(RotaryScaling):
    """Llama 3.1 scaling: pairs of long wavelength are interpolated, short ones kept, those between blended.

    With r rotations over `original_max_sequence_length`: the rate is divided by `factor` where `r < low_freq_factor`, kept
    where `r > high_freq_factor`, and blended with the share `(r - low) / (high - low)` between.

    Args:
        factor: float >= 1. Factor of the sequence length.
        original_max_sequence_length: int >= 1. The length that the model was trained on.
        low_freq_factor: float. Pairs with fewer rotations are interpolated.
        high_freq_factor: float, above `low_freq_factor`. Pairs with more rotations are kept.

    Raises:
        ValueError: `factor` below 1; `low_freq_factor` not below `high_freq_factor`.

    Example:

    >>> Llama3Scaling(8.0, original_max_sequence_length=8192).rates(4, 500000.0).round(6).tolist()
    [1.0, 0.000525]

    Reference: the code of Llama 3.1 (`apply_scaling`); Grattafiori et al., The Llama 3 Herd of Models, arXiv 2407.21783.
    """

    def __init__(
        self,
        factor: float = 8.0,
        original_max_sequence_length: int = 8192,
        low_freq_factor: float = 1.0,
        high_freq_factor: float = 4.0,
    ) -> None:
        super().__init__(factor)
        if not low_freq_factor < high_freq_factor:
            raise ValueError(
                f"low_freq_factor must be below high_freq_factor={high_freq_factor}. Received: {low_freq_factor}"
            )
        self.original_max_sequence_length = original_max_sequence_length
        self.low_freq_factor = low_freq_factor
        self.high_freq_factor = high_freq_factor

    def rates(self, width: int, max_wavelength: float) -> np.ndarray:
        kept = rotary_rates(width, max_wavelength)
        turns = self.original_max_sequence_length * kept / (2 * math.pi)
        share = np.clip((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor), 0, 1)
        return kept * share + kept / self.factor * (1 - share)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "original_max_sequence_length": self.original_max_sequence_length,
            "low_freq_factor": self.low_freq_factor,
            "high_freq_factor": self.high_freq_factor,
        }


def rotary_rates(width: int, max_wavelength: float) -> np.ndarray:
    """Returns the rate `max_wavelength^(-2i / width)` of each pair i, float64 `(width / 2,)`."""
    return max_wavelength ** -(np.arange(0, width, 2) / width)
