"""Whether the devices of the current distribution share rows."""

from __future__ import annotations

import keras

SEQUENCE = "sequence"


def axis_size(mesh: keras.distribution.DeviceMesh, name: str) -> int:
    """Returns the number of devices along an axis of a `keras.distribution.DeviceMesh`.

    Example:

    >>> axis_size(keras.distribution.DeviceMesh((1, 2), ("batch", "model"), ["cpu:0", "cpu:1"]), "model")
    2
    """
    return mesh.shape[list(mesh.axis_names).index(name)]


def mesh_that_splits_rows() -> keras.distribution.DeviceMesh | None:
    """Returns the mesh of the current `keras.distribution` if its axis "sequence" splits rows, or None.

    Example:

    >>> mesh_that_splits_rows() is None
    True
    """
    distribution = keras.distribution.distribution() if keras.backend.backend() == "jax" else None
    mesh = getattr(distribution, "device_mesh", None)
    return mesh if mesh is not None and SEQUENCE in mesh.axis_names else None
