"""Sinusoidal position encoding."""

from __future__ import annotations

from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class Sinusoidal(keras.layers.Layer):
    """Sinusoidal position encoding: adds sines and cosines of geometrically spaced wavelengths to the input.

    For position p and i = 0 .. D/2 - 1, with angle `p / max_wavelength^(2i / D)`:
    `interleaved` puts `sin` at feature 2i and `cos` at 2i + 1; `halves` puts all sines first, then all cosines.

    Args:
        max_wavelength: float > 0. The largest wavelength divided by 2π. Defaults to 10000.
        layout: "interleaved" (the paper) or "halves" (tensor2tensor, Marian).
        endpoint: bool. Whether the largest wavelength is included, with exponents `i / (D/2 - 1)`, as in tensor2tensor and
            fairseq. Defaults to False, as in the paper.
        offset: int. Added to every position; 2 in fairseq. Defaults to 0.

    Call arguments:
        inputs: float `(B, T, D)`, D even.
        positions: int `(T,)` or `(B, T)`, or None for 0 .. T - 1.

    Returns:
        `(B, T, D)`, in the dtype of the layer.

    Raises:
        ValueError: unknown layout; D odd, or 2 with `endpoint`.

    Example:

    >>> import numpy as np
    >>> Sinusoidal()(np.zeros((1, 2, 2))).numpy().round(3).tolist()
    [[[0.0, 1.0], [0.8410000205039978, 0.5400000214576721]]]

    Reference: Vaswani et al., Attention Is All You Need, arXiv 1706.03762, section 3.5.
    """

    def __init__(
        self,
        max_wavelength: float = 10000.0,
        layout: str = "interleaved",
        endpoint: bool = False,
        offset: int = 0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if layout not in ("interleaved", "halves"):
            raise ValueError(f"layout must be 'interleaved' or 'halves'. Received: {layout!r}")
        self.max_wavelength = float(max_wavelength)
        self.layout = layout
        self.endpoint = endpoint
        self.offset = offset
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        if input_shape[-1] % 2:
            raise ValueError(f"The width must be even. Received input shape: {input_shape}")
        if self.endpoint and input_shape[-1] < 4:
            raise ValueError(f"With endpoint=True the width must be at least 4. Received input shape: {input_shape}")

    def call(self, inputs: Tensor, positions: Tensor | None = None) -> Tensor:
        width = inputs.shape[-1]
        if positions is None:
            positions = ops.arange(ops.shape(inputs)[1], dtype="float32")
        rates, phases = self._rates_and_phases(width)
        angles = ops.expand_dims(ops.cast(positions, "float32") + self.offset, -1) * rates
        # cos(a) = sin(a + π/2): one sine, and no interleaving of two tensors.
        encoding = ops.cast(ops.sin(angles + phases), inputs.dtype)
        if len(encoding.shape) == 2:
            encoding = ops.expand_dims(encoding, 0)
        return inputs + encoding

    def _rates_and_phases(self, width):
        exponents = np.arange(0, width, 2) / (width - 2 if self.endpoint else width)
        rates = self.max_wavelength**-exponents
        if self.layout == "interleaved":
            rates, phases = np.repeat(rates, 2), np.tile([0.0, np.pi / 2], width // 2)
        else:
            rates, phases = np.tile(rates, 2), np.repeat([0.0, np.pi / 2], width // 2)
        return ops.convert_to_tensor(rates, "float32"), ops.convert_to_tensor(phases, "float32")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> Config:
        own = {name: getattr(self, name) for name in ("max_wavelength", "layout", "endpoint", "offset")}
        return {**super().get_config(), **own}
