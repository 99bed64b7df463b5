"""Layout of the weights of a model on several devices."""

from __future__ import annotations

import keras

from keras_transformer.backend import keras_private
from keras_transformer.feedforward import MixtureOfExperts
from keras_transformer.layers.projection import Projection

# Names of projections that read sharded channels: they are sharded by rows.
_ROW_SHARDED = ("output", "output_dense")


def layout_map(
    model: keras.Model, mesh: keras.distribution.DeviceMesh, axis: str = "model"
) -> keras.distribution.LayoutMap:
    """Layout map that shards the weights of a model over devices, for `keras.distribution.ModelParallel`.

    Attention is split by heads, a feed-forward by its hidden channels, a mixture of experts by experts, an embedding by
    tokens, a dense head by classes. Each attention and each feed-forward needs one all-reduce. A weight whose dimension is
    not a multiple of the number of devices (few key/value heads, an odd vocabulary) is split along its other dimension, if
    that needs no communication, or replicated, as norms and biases of outputs are.

    Args:
        model: any `keras.Model` made of layers of this package, such as those of `models` and `tasks`; its weights need no
            values: see `checkpoints.unallocated`.
        mesh: `keras.distribution.DeviceMesh`.
        axis: str. The name of the axis of `mesh` along which weights are split.

    Returns:
        `keras.distribution.LayoutMap` by the paths of the weights, which are equal in every model of the same architecture.

    Raises:
        ValueError: `mesh` has no such axis.

    `training.distributed` builds one automatically.

    Example:

    >>> from keras_transformer.models import Decoder, Size
    >>> mesh = keras.distribution.DeviceMesh((1, 2), ("batch", "model"), ["cpu:0", "cpu:1"])
    >>> layouts = layout_map(Decoder(Size(1, 8, 2, 16), vocabulary_size=10), mesh)
    >>> layouts["decoder_block_0/self_attention/query/kernel"].axes
    (None, 'model', None)

    Reference: Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3.
    """
    if axis not in mesh.axis_names:
        raise ValueError(f"The mesh has no axis {axis!r}; it has {list(mesh.axis_names)}.")
    size = mesh.shape[list(mesh.axis_names).index(axis)]
    layouts, seen = keras.distribution.LayoutMap(mesh), set()
    for layer in keras_private.flatten_layers(model):
        for variable, axes in _splits(layer):
            split = next((index for index in axes if variable.shape[index] % size == 0), None)
            if split is None or id(variable) in seen:
                continue
            seen.add(id(variable))
            layouts[variable.path] = tuple(axis if index == split else None for index in range(len(variable.shape)))
    return layouts


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
