"""Kernels: how much a neighbor at a distance weighs. Each takes squared distances, in widths, and gives weights."""

from __future__ import annotations

from keras import ops

from keras_transformer.utils.types import Tensor

# Below every distance that matters; the root of 0 has no gradient.
_NEAR = 1e-12


def gaussian(squared: Tensor) -> Tensor:
    """`exp(-u² / 2)`."""
    return ops.exp(-0.5 * squared)


def boxcar(squared: Tensor) -> Tensor:
    """1 within a width, 0 beyond."""
    return ops.cast(squared <= 1.0, squared.dtype)


def epanechnikov(squared: Tensor) -> Tensor:
    """`1 - u²` within a width, 0 beyond."""
    return ops.relu(1.0 - squared)


def triangular(squared: Tensor) -> Tensor:
    """`1 - |u|` within a width, 0 beyond."""
    return ops.relu(1.0 - ops.sqrt(ops.maximum(squared, _NEAR)))


def constant(squared: Tensor) -> Tensor:
    """1 at any distance: the mean."""
    return ops.ones_like(squared)


KERNELS = {
    "gaussian": gaussian,
    "boxcar": boxcar,
    "epanechnikov": epanechnikov,
    "triangular": triangular,
    "constant": constant,
}

# Whose weights do not change, or change in jumps: nothing is learned from them.
FLAT_KERNELS = ("boxcar", "constant")
