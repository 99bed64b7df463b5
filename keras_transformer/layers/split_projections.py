"""Projections of the same tokens whose kernels are split over devices, with one sum over devices of their gradients."""

from __future__ import annotations

import keras
from keras import ops

from keras_transformer.backend.devices.split_layers import BATCH, MODEL, mesh_that_splits_layers
from keras_transformer.backend.devices.split_rows import SEQUENCE, axis_size
from keras_transformer.layers.projection import Projection
from keras_transformer.utils.types import Tensor


class SharedInputs:
    """Calls projections so that devices sum the gradient of each input once, however many projections read it.

    Each device has a part of the kernel of every projection, and so a part of the gradient of the input, which has to be
    summed over the devices: for query, key and value, or gate and hidden layer, once for each of them. Here the input is
    first copied, `(B, T, D)` to `(B, T, devices, D)`, one copy on each device. The gradients of a copy are summed where it
    is; those of the copies once, as the gradient of the input.

    Without a `keras.distribution.ModelParallel` whose axis "model" has several devices, projections are called as they are.

    Example:

    >>> import numpy as np
    >>> layer = Projection("btd,de->bte", output_shape=(None, 3))
    >>> project = SharedInputs()
    >>> tuple(project(layer, np.ones((1, 5, 4), "float32")).shape)
    (1, 5, 3)

    Reference: Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3 (the operator f).
    """

    def __init__(self) -> None:
        self._mesh = mesh_that_splits_layers()
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, layer: Projection, x: Tensor) -> Tensor:
        """Returns `layer(x)`, for x `(B, T, D)`."""
        if self._mesh is None or not layer.takes_copies(axis_size(self._mesh, MODEL)):
            return layer(x)
        if id(x) not in self._copies:  # With the input, so that no other tensor has its id.
            self._copies[id(x)] = x, _copies(x, self._mesh)
        return layer(x, copies=self._copies[id(x)][1])


def _copies(x: Tensor, mesh: keras.distribution.DeviceMesh) -> Tensor:
    """`(B, T, D)` to `(B, T, devices, D)`, a copy on each device that shares the layers."""
    batch, rows = (name if name in mesh.axis_names else None for name in (BATCH, SEQUENCE))
    layout = keras.distribution.TensorLayout((batch, rows, MODEL, None), mesh)
    shape = (*x.shape[:2], axis_size(mesh, MODEL), x.shape[2])
    return keras.distribution.distribute_tensor(ops.broadcast_to(ops.expand_dims(x, 2), shape), layout)
