"""Learning-rate schedules."""

import math

import keras
from keras import ops

from keras_transformer.utils.serialization import serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a peak learning rate, then cosine decay.

    With peak p, W warm-up steps, T steps in all and final fraction f, at step s:

        s < W:   p s / W
        s >= W:  p (f + (1 - f) (1 + cos(pi min(1, (s - W) / (T - W)))) / 2)

    that is, the rate is 0 at step 0 (p when W = 0), p at step W, and f p from step T on. With
    `gradient_accumulation_steps` Keras's optimizers count each batch as a step, not each update.

    Args:
        peak_learning_rate: float > 0.
        warmup_steps: int >= 0 and < `total_steps`.
        total_steps: int >= 1. Steps of the whole training, warm-up included.
        final_fraction: float in [0, 1]. The final rate as a fraction of the peak. Default 0.

    Call arguments:
        step: int or an integer scalar tensor.

    Returns:
        The learning rate, a float32 scalar.

    Raises:
        ValueError: an argument is out of its range.

    Example:

    >>> schedule = WarmupCosine(0.5, warmup_steps=10, total_steps=110)
    >>> [round(float(schedule(step)), 3) for step in (0, 5, 10, 60, 110)]
    [0.0, 0.25, 0.5, 0.25, 0.0]

    Reference: Loshchilov and Hutter, arXiv 1608.03983, equation 5 with one cycle; warm-up as in Goyal et al.,
    arXiv 1706.02677, section 2.2.
    """

    def __init__(
        self, peak_learning_rate: float, warmup_steps: int, total_steps: int, final_fraction: float = 0.0
    ) -> None:
        super().__init__()
        if not peak_learning_rate > 0:
            raise ValueError(f"peak_learning_rate must be above 0. Received: {peak_learning_rate}")
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(
                f"warmup_steps must be at least 0 and below total_steps={total_steps}. Received: {warmup_steps}"
            )
        if not 0 <= final_fraction <= 1:
            raise ValueError(f"final_fraction must be in [0, 1]. Received: {final_fraction}")
        self.peak_learning_rate = peak_learning_rate
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.final_fraction = final_fraction

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32")
        rising = step / max(self.warmup_steps, 1)
        done = ops.clip((step - self.warmup_steps) / (self.total_steps - self.warmup_steps), 0.0, 1.0)
        cosine = 0.5 * (1.0 + ops.cos(math.pi * done))
        falling = self.final_fraction + (1.0 - self.final_fraction) * cosine
        return self.peak_learning_rate * ops.where(step < self.warmup_steps, rising, falling)

    def get_config(self) -> Config:
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "final_fraction": self.final_fraction,
        }


@serializable
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a peak learning rate, then decay with the inverse square root of the step.

    With peak p and W warm-up steps, at the s-th update:

        rate = p min(s / W, (W / s)^0.5)

    With the model width D instead of the peak, p = scale (D W)^-0.5, as in the paper:

        rate = scale D^-0.5 min(s^-0.5, s W^-1.5)

    Args:
        warmup_steps: int >= 1. Default 4000, as in the paper.
        hidden_dim: int >= 1, or None. D.
        peak_learning_rate: float > 0, or None. Exactly one of `hidden_dim` and `peak_learning_rate` is required.
        scale: float > 0. Factor of the rate. Default 1.

    Call arguments:
        step: int or an integer scalar tensor. The updates made so far: s = step + 1.

    Returns:
        The learning rate, a float32 scalar.

    Raises:
        ValueError: an argument is out of its range; both or neither of `hidden_dim` and `peak_learning_rate` are given.

    Example:

    >>> schedule = InverseSquareRoot(warmup_steps=4, peak_learning_rate=1.0)
    >>> [float(schedule(step)) for step in (0, 1, 3, 15)]
    [0.25, 0.5, 1.0, 0.5]

    Reference: Vaswani et al., arXiv 1706.03762, equation 3, with the first step 1 where Keras counts from 0; `scale` and the
    peak are additions.
    """

    def __init__(
        self,
        warmup_steps: int = 4000,
        *,
        hidden_dim: int | None = None,
        peak_learning_rate: float | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        if warmup_steps < 1:
            raise ValueError(f"warmup_steps must be at least 1. Received: {warmup_steps}")
        if (hidden_dim is None) == (peak_learning_rate is None):
            raise ValueError(
                "Give exactly one of hidden_dim and peak_learning_rate. "
                f"Received: hidden_dim={hidden_dim}, peak_learning_rate={peak_learning_rate}"
            )
        for name, value in (("hidden_dim", hidden_dim), ("peak_learning_rate", peak_learning_rate), ("scale", scale)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0. Received: {value}")
        self.warmup_steps = warmup_steps
        self.hidden_dim = hidden_dim
        self.peak_learning_rate = peak_learning_rate
        self.scale = scale

    def __call__(self, step: Tensor) -> Tensor:
        peak = self.peak_learning_rate or ((self.hidden_dim or 1) * self.warmup_steps) ** -0.5
        update = ops.cast(step, "float32") + 1.0
        return self.scale * peak * ops.minimum(update / self.warmup_steps, ops.sqrt(self.warmup_steps / update))

    def get_config(self) -> Config:
        return {
            "warmup_steps": self.warmup_steps,
            "hidden_dim": self.hidden_dim,
            "peak_learning_rate": self.peak_learning_rate,
            "scale": self.scale,
        }
