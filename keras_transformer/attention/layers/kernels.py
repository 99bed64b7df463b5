"""Kernels: how much a neighbor at a distance weighs. Each takes squared distances, in widths, and gives weights."""

from keras import ops

# Below every distance that matters; the root of 0 has no gradient.
_NEAR = 1e-12


def gaussian(squared):
    """`exp(-u² / 2)`."""
    return ops.exp(-0.5 * squared)


def boxcar(squared):
    """1 within a width, 0 beyond."""
    return ops.cast(squared <= 1.0, squared.dtype)


def epanechnikov(squared):
    """`1 - u²` within a width, 0 beyond."""
    return ops.relu(1.0 - squared)


def triangular(squared):
    """`1 - |u|` within a width, 0 beyond."""
    return ops.relu(1.0 - ops.sqrt(ops.maximum(squared, _NEAR)))


def constant(squared):
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
