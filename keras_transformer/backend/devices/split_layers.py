"""Layers that devices share, and their experts: each device computes its own for all tokens that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
from keras import ops

from keras_transformer.backend.devices.split_rows import SEQUENCE, axis_size
from keras_transformer.utils.types import Shape, Tensor

MODEL, BATCH = "model", "batch"


def mesh_that_splits_layers() -> keras.distribution.DeviceMesh | None:
    """Returns the mesh of the current `keras.distribution` if its axis "model" splits layers, or None.

    Example:

    >>> mesh_that_splits_layers() is None
    True
    """
    distribution: Any = keras.distribution.distribution() if keras.backend.backend() == "jax" else None
    if not isinstance(distribution, keras.distribution.ModelParallel):
        return None
    mesh = distribution.device_mesh
    return mesh if MODEL in mesh.axis_names and axis_size(mesh, MODEL) > 1 else None


def mesh_that_splits_experts(num_experts: int, shape: Shape) -> keras.distribution.DeviceMesh | None:
    """Returns the mesh of the current `keras.distribution` if its axis "model" splits experts, or None.

    Args:
        num_experts: int.
        shape: that of the tokens, `(B, T, D)`.

    Returns:
        `keras.distribution.DeviceMesh`; None if the experts, rows or tokens do not divide by the devices.
    """
    mesh = mesh_that_splits_layers()
    if mesh is None:
        return None
    sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))
    divided = ((num_experts, MODEL), (shape[0], BATCH), (shape[1], SEQUENCE))
    return mesh if all(count % sizes.get(axis, 1) == 0 for count, axis in divided) else None


def on_devices_of_experts(
    function: Callable[..., Tensor],
    mesh: keras.distribution.DeviceMesh,
    num_experts: int,
    x: Tensor,
    experts: Tensor,
    weights: Tensor,
    kernels: Mapping[str, Tensor | None],
) -> Tensor:
    """Returns the sum over devices of `function` of the tokens of a device and its own experts.

    Devices exchange this sum, and backward that of the gradient of x: no kernel, and no token of other rows.

    Args:
        function: function of x, experts, weights and kernels of a device, and its number of experts, to `(B, T, D)`.
        mesh: `keras.distribution.DeviceMesh` of `mesh_that_splits_experts`.
        num_experts: int. E.
        x: float `(B, T, D)`.
        experts: int32 `(B, T, k)`; E for none. On each device its own count from 0, and all others are none.
        weights: float `(B, T, k)`.
        kernels: tensors `(E, ...)`, in any structure.
    """
    import jax

    own = num_experts // axis_size(mesh, MODEL)
    tokens = jax.sharding.PartitionSpec(*(axis if axis in mesh.axis_names else None for axis in (BATCH, SEQUENCE)))

    def of_device(x, experts, weights, kernels):
        experts = experts - jax.lax.axis_index(MODEL) * own
        is_own = ops.logical_and(experts >= 0, experts < own)
        found = function(x, ops.where(is_own, experts, own), weights, kernels, own)
        return jax.lax.psum(found, MODEL)

    specs = (tokens, tokens, tokens, jax.sharding.PartitionSpec(MODEL))
    return jax.shard_map(of_device, mesh=mesh.backend_mesh, in_specs=specs, out_specs=tokens)(
        x, experts, weights, kernels
    )
