"""Layout of the weights of a model on several devices."""

from __future__ import annotations

import keras

from keras_transformer.backend import keras_private
from keras_transformer.backend.devices.split_rows import axis_size
from keras_transformer.feedforward import MixtureOfExperts
from keras_transformer.layers.projection import Projection

# Names of projections that read sharded channels: they are sharded by rows.
_ROW_SHARDED = ("output", "output_dense")


def layout_map(
    model: keras.Model, mesh: keras.distribution.DeviceMesh, axis: str = "model", data_axis: str | None = None
) -> keras.distribution.LayoutMap:
    """Layout map that shards the weights of a model over devices, for `keras.distribution.ModelParallel`.

    Attention is split by heads, a feed-forward by its hidden channels, a mixture of experts by experts, an embedding by
    tokens, a dense head by classes. Each attention and each feed-forward needs one all-reduce. A weight whose dimension is
    not a multiple of the number of devices (few key/value heads, an odd vocabulary) is split along its other dimension, if
    that needs no communication, or replicated, as norms and biases of outputs are.

    With `data_axis`, every weight is also split over the devices that train on different rows, as in fully sharded data
    parallelism (ZeRO-3): along its largest dimension that is a multiple of their number and that `axis` does not split. A
    step gathers each weight where it is used. The optimizer's variables have the layout of their weight.

    Args:
        model: any `keras.Model` made of layers of this package, such as those of `models` and `tasks`; its weights need no
            values: see `checkpoints.unallocated`.
        mesh: `keras.distribution.DeviceMesh`.
        axis: str. The name of the axis of `mesh` along which layers are split.
        data_axis: str or None. The name of the axis of `mesh` that splits batches, to split all weights along it too. None
            for weights that all of these devices have.

    Returns:
        `keras.distribution.LayoutMap` by the paths of the weights, which are equal in every model of the same architecture.

    Raises:
        ValueError: `mesh` has no such axis, or both axes are the same.

    `training.distributed` builds one automatically.

    Example:

    >>> from keras_transformer.models import Decoder, Size
    >>> mesh = keras.distribution.DeviceMesh((1, 2), ("batch", "model"), ["cpu:0", "cpu:1"])
    >>> layouts = layout_map(Decoder(Size(1, 8, 2, 16), vocabulary_size=10), mesh)
    >>> layouts["decoder_block_0/self_attention/query/kernel"].axes
    (None, 'model', None)

    Reference: Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3.
    """
    sizes = {name: _axis_size(mesh, name) for name in (axis, data_axis) if name is not None}
    if axis == data_axis:
        raise ValueError(f"axis and data_axis must differ. Received: {axis!r} for both.")
    layouts = keras.distribution.LayoutMap(mesh)
    split = _split_layers(model, axis, sizes[axis]) if sizes[axis] > 1 else {}
    if data_axis is not None:
        for layer in keras_private.flatten_layers(model):
            for variable in keras_private.own_weights(layer):
                axes = split.setdefault(variable.path, [None] * len(variable.shape))
                _split_largest(axes, variable, data_axis, sizes[data_axis])
    for path, axes in split.items():
        if any(axes):
            layouts[path] = tuple(axes)
    return layouts


def _split_layers(model, axis, size):
    """The axes of the weights of layers that are split: dict of path to list with `axis` at one index, None at others."""
    found = {}
    for layer in keras_private.flatten_layers(model):
        for variable, axes in _splits(layer):
            split = next((index for index in axes if variable.shape[index] % size == 0), None)
            if split is not None:
                found.setdefault(
                    variable.path, [axis if index == split else None for index in range(len(variable.shape))]
                )
    return found


def _split_largest(axes, variable, axis, size):
    """Puts `axis` at the largest dimension of a variable that divides by `size` and is not split yet, if there is one."""
    free = [index for index, length in enumerate(variable.shape) if axes[index] is None and length % size == 0]
    if free and axis not in axes:  # A layer can be in a model several times.
        axes[max(free, key=lambda index: variable.shape[index])] = axis


def _axis_size(mesh, name):
    if name not in mesh.axis_names:
        raise ValueError(f"The mesh has no axis {name!r}; it has {list(mesh.axis_names)}.")
    return axis_size(mesh, name)


def _splits(layer):
    """The weights of a layer that may be split: pairs of a variable and its axes, preferred axis first."""
    if isinstance(layer, Projection):
        return _projection_splits(layer)
    if isinstance(layer, keras.layers.Dense):
        return _present((keras_private.kernel(layer), (1,)), (layer.bias, (0,)))
    if isinstance(layer, keras.layers.Embedding):
        return _present((keras_private.embeddings(layer), (0, 1)), (getattr(layer, "reverse_embeddings", None), (1, 0)))
    if isinstance(layer, MixtureOfExperts):
        # By experts if possible, else by the hidden channels of each.
        return _present(
            *((kernel, (0, 2)) for kernel in (layer.gate_kernel, layer.hidden_kernel)),
            *((bias, (0, 1)) for bias in (layer.gate_bias, layer.hidden_bias)),
            (layer.output_kernel, (0, 1)),
            (layer.output_bias, (0,)),
        )
    return []


def _projection_splits(layer):
    reads_heads = layer.equation.startswith("btnh,")
    if reads_heads or layer.name in _ROW_SHARDED:
        return _present((keras_private.kernel(layer), (0,)))
    # Axis 1 of a kernel has the heads or channels, as axis 0 of its bias.
    return _present((keras_private.kernel(layer), (1,)), (layer.bias, (0,)))


def _present(*pairs):
    return [(variable, axes) for variable, axes in pairs if variable is not None]
