"""Kernels for kernel regression: functions from squared distances, in units of the squared width, to weights."""

from __future__ import annotations

from collections.abc import Callable

from keras import ops

from keras_transformer.utils.types import Tensor

# The square root has no gradient at 0.
_NEAR = 1e-12


def gaussian(squared: Tensor) -> Tensor:
    """Gaussian kernel: `exp(-u² / 2)`."""
    return ops.exp(-0.5 * squared)


def boxcar(squared: Tensor) -> Tensor:
    """Boxcar kernel: 1 for `|u| <= 1`, else 0."""
    return ops.cast(squared <= 1.0, squared.dtype)


def epanechnikov(squared: Tensor) -> Tensor:
    """Epanechnikov kernel: `1 - u²` for `|u| <= 1`, else 0."""
    return ops.relu(1.0 - squared)


def triangular(squared: Tensor) -> Tensor:
    """Triangular kernel: `1 - |u|` for `|u| <= 1`, else 0."""
    return ops.relu(1.0 - ops.sqrt(ops.maximum(squared, _NEAR)))


def constant(squared: Tensor) -> Tensor:
    """Constant kernel: 1, which makes the estimate a mean."""
    return ops.ones_like(squared)


KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "gaussian": gaussian,
    "boxcar": boxcar,
    "epanechnikov": epanechnikov,
    "triangular": triangular,
    "constant": constant,
}

# Piecewise constant kernels, which have no gradient.
FLAT_KERNELS = ("boxcar", "constant")
