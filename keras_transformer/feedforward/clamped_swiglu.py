"""Clamped SwiGLU."""

from __future__ import annotations

from keras import ops

from keras_transformer.feedforward.activations import Gating
from keras_transformer.utils.serialization import Configured, serializable
from keras_transformer.utils.types import Config, Tensor


@serializable
class ClampedSwiGLU(Gating, Configured):
    """Clamped SwiGLU: `(h + 1) g σ(alpha g)` for gate g and hidden layer h, both clamped.

    The gate is at most `limit`, and the hidden layer is between `-limit` and `limit`. It is the `activation` of a
    `GatedFeedForward` or of a gated `MixtureOfExperts`.

    Args:
        alpha: float > 0. Slope of the sigmoid.
        limit: float > 0.

    Call arguments:
        gate: float tensor.
        hidden: float tensor of the same shape.

    Returns:
        A tensor of the same shape.

    Raises:
        ValueError: `alpha` or `limit` not above 0.

    Example:

    >>> import numpy as np
    >>> gate, hidden = np.array([9.0, -1.0], "float32"), np.array([-9.0, 1.0], "float32")
    >>> [round(float(value), 3) for value in ClampedSwiGLU()(gate, hidden)]
    [-42.0, -0.308]

    Reference: OpenAI, gpt-oss model card, arXiv 2508.10925, section 2.2; the formula is that of the code of gpt-oss.
    """

    def __init__(self, alpha: float = 1.702, limit: float = 7.0) -> None:
        for name, value in (("alpha", alpha), ("limit", limit)):
            if not value > 0:
                raise ValueError(f"{name} must be above 0. Received: {value}")
        self.alpha = float(alpha)
        self.limit = float(limit)

    def __call__(self, gate: Tensor, hidden: Tensor) -> Tensor:
        gate = ops.minimum(gate, self.limit)
        hidden = ops.clip(hidden, -self.limit, self.limit)
        return (hidden + 1) * gate * ops.sigmoid(self.alpha * gate)

    def get_config(self) -> Config:
        return {"alpha": self.alpha, "limit": self.limit}
