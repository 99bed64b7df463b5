"""Multimodal rotary position embedding (M-RoPE): rotary angles from several axes, such as time, row and column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import keras
import numpy as np
from keras import ops

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.rotations.length_scaling import DynamicNTKScaling, LongRoPEScaling
from keras_transformer.positions.rotations.rotary import ROTARY_SCALINGS, cos_and_sin, rotate_pairs
from keras_transformer.positions.rotations.rotary_scaling import RotaryScaling, rotary_rates
from keras_transformer.utils.serialization import resolve, serializable
from keras_transformer.utils.types import Config, LayerOptions, Shape, Tensor


@serializable
class MultimodalRotary(AttentionPosition):
    """Multimodal rotary position embedding (M-RoPE): rotates query and key by positions of several axes.

    Of the H / 2 pairs of features `(i, i + H/2)`, the first `sections[0]` turn by the position on the first axis, the next
    `sections[1]` by that on the second, and so on: pair i by `θ_i = p_axis(i) · max_wavelength^(-2i / H)`. A token with the
    same position on all axes, such as one of a text, is rotated as by `Rotary(layout="halves")`. Angles are computed in
    float32 under every dtype policy.

    Args:
        sections: ints >= 1: the pairs of each axis, H / 2 in all, such as (16, 24, 24) for time, row and column of Qwen2-VL.
            None for three axes: a quarter of the pairs, and half of the others each.
        max_wavelength: float > 0. Defaults to 10000.
        restarts_rates: bool. Whether the rates restart in each section of n pairs, with
            `max_wavelength^(-j / n)` for its pair j: 2-D RoPE, as in the image towers of Qwen2-VL. Defaults to False.
        scaling: None, an instance, or a name in `ROTARY_SCALINGS` ("linear", "ntk", "yarn", "llama3"): scaling of the angles
            for positions beyond those of training, the same on every axis.

    Call arguments:
        positions: int `(1 | B, T, A)`: the position on each of A axes; or int `(T,)` or `(B, T)`, the same on all axes.

    Returns:
        Rotated queries and keys, of the same shapes.

    Raises:
        ValueError: a section below 1; sections that are not half of the features of a head; positions of another number of
            axes; a scaling that depends on the length of the sequence.

    Example:

    >>> import numpy as np
    >>> x = np.array([1.0, 1.0, 0.0, 0.0]).reshape(1, 1, 1, 4)
    >>> position = MultimodalRotary((1, 1), restarts_rates=True)
    >>> rotated, _ = position.rotate(x, x, np.array([[[1, 2]]]), np.array([[[1, 2]]]))
    >>> np.array(rotated).astype("float64").round(3).ravel().tolist()  # Angles 1 and 2.
    [0.54, -0.416, 0.841, 0.909]

    Reference: Wang et al., Qwen2-VL, arXiv 2409.12191, section 2.1 and figure 3. `scaling` is not in the paper; checkpoints
    use YaRN for long texts.
    """

    def __init__(
        self,
        sections: Sequence[int] | None = None,
        max_wavelength: float = 10000.0,
        restarts_rates: bool = False,
        scaling: str | Config | RotaryScaling | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if sections is not None and (not sections or min(sections) < 1):
            raise ValueError(f"sections must be integers of at least 1, or None. Received: {sections}")
        self.sections = None if sections is None else tuple(sections)
        self.max_wavelength = float(max_wavelength)
        self.restarts_rates = restarts_rates
        self.scaling = resolve(scaling, ROTARY_SCALINGS, RotaryScaling, argument="scaling")
        if isinstance(self.scaling, DynamicNTKScaling | LongRoPEScaling):
            raise ValueError(f"scaling must not depend on the length of the sequence. Received: {scaling}")

    def build(self, query_shape: Shape, *shapes: Shape) -> None:
        self._sections(query_shape[-1])  # Raises for heads of another width.

    def rotate(
        self, query: Tensor, key: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self._rotate(query, query_positions), self._rotate(key, key_positions)

    def _rotate(self, x, positions):
        cos, sin = self._cos_and_sin(ops.convert_to_tensor(positions), x.shape[-1])
        if self.scaling is not None and self.scaling.magnitude != 1.0:
            cos, sin = cos * self.scaling.magnitude, sin * self.scaling.magnitude
        return rotate_pairs(x, cos, sin, "halves")

    def _cos_and_sin(self, positions, width):
        sections, rates = self._sections(width), self._rates(width)
        if len(positions.shape) < 3:
            return cos_and_sin(positions, np.concatenate(rates), "halves")
        if positions.shape[-1] != len(sections):
            raise ValueError(f"sections={sections} need positions (B, T, {len(sections)}). Received: {positions.shape}")
        positions = ops.cast(positions, "float32")
        angles = [positions[..., axis : axis + 1] * rate.astype("float32") for axis, rate in enumerate(rates)]
        angles = ops.expand_dims(ops.concatenate([*angles, *angles], axis=-1), 2)  # (1 | B, T, 1, H)
        return ops.cos(angles), ops.sin(angles)

    def _rates(self, width):
        """The rates of each section: list of float64 arrays."""
        sections, rates = self._sections(width), rotary_rates if self.scaling is None else self.scaling.rates
        if self.restarts_rates:
            return [rates(2 * count, self.max_wavelength) for count in sections]
        return np.split(rates(width, self.max_wavelength), np.cumsum(sections)[:-1])

    def _sections(self, width):
        sections = self.sections
        if sections is None:
            first = max(1, width // 8)
            others = width // 2 - first
            sections = (first, others // 2, others - others // 2)
        if 2 * sum(sections) != width:
            raise ValueError(f"sections must add up to half of the {width} features of a head. Received: {sections}")
        return sections

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "sections": self.sections,
            "max_wavelength": self.max_wavelength,
            "restarts_rates": self.restarts_rates,
            "scaling": None if self.scaling is None else keras.saving.serialize_keras_object(self.scaling),
        }
