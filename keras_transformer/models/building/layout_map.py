"""How the weights of a model lie on many devices."""

from __future__ import annotations

import keras

from keras_transformer.backend import keras_private
from keras_transformer.feedforward import MixtureOfExperts
from keras_transformer.layers.projection import Projection

# What a layer that reads what others share out calls itself: its rows are shared out, as their columns are.
_JOINING = ("output", "output_dense")


def layout_map(
    model: keras.Model, mesh: keras.distribution.DeviceMesh, axis: str = "model"
) -> keras.distribution.LayoutMap:
    """Layout map that shards the weights of a model over devices, for `keras.distribution.ModelParallel`.

    Attention is split by heads, a feed-forward by its hidden channels, a mixture of experts by experts, an embedding by
    tokens, a dense head by classes. What two layers split alike needs no exchange between them: devices add up what they
    have once behind each attention and each feed-forward. A weight whose size the devices do not divide (few key/value
    heads, an odd vocabulary) is split along its other side, if that costs nothing, or lies on each device whole, as norms
    and biases of outputs do.

    Args:
        model: any `keras.Model` made of layers of this package, such as those of `models` and `tasks`; its weights need no
            values: see `checkpoints.unallocated`.
        mesh: `keras.distribution.DeviceMesh`.
        axis: str. The name of the axis of `mesh` along which weights are split.

    Returns:
        `keras.distribution.LayoutMap` by the paths of the weights: a model built anew in the same way has the same.

    Raises:
        ValueError: `mesh` has no such axis.

    `training.distributed` makes one by itself.

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
        for variable, sides in _splits(layer):
            side = next((side for side in sides if variable.shape[side] % size == 0), None)
            if side is None or id(variable) in seen:
                continue
            seen.add(id(variable))
            layouts[variable.path] = tuple(axis if index == side else None for index in range(len(variable.shape)))
    return layouts


def _splits(layer):
    """The weights of a layer itself that may be split: pairs of variable and its sides, the best first."""
    if isinstance(layer, Projection):
        return _projection_splits(layer)
    if isinstance(layer, keras.layers.Dense):
        return _present((keras_private.kernel(layer), (1,)), (layer.bias, (0,)))
    if isinstance(layer, keras.layers.Embedding):
        return _present((keras_private.embeddings(layer), (0, 1)), (getattr(layer, "reverse_embeddings", None), (1, 0)))
    if isinstance(layer, MixtureOfExperts):
        # Experts, if they can be shared out; else the inside of each.
        return _present(
            *((kernel, (0, 2)) for kernel in (layer.gate_kernel, layer.hidden_kernel)),
            *((bias, (0, 1)) for bias in (layer.gate_bias, layer.hidden_bias)),
            (layer.output_kernel, (0, 1)),
            (layer.output_bias, (0,)),
        )
    return []


def _projection_splits(layer):
    joins_heads = layer.equation.startswith("btnh,")
    if joins_heads or layer.name in _JOINING:
        return _present((keras_private.kernel(layer), (0,)))
    # The second side of a kernel is its heads or its channels, which are the first of its bias.
    return _present((keras_private.kernel(layer), (1,)), (layer.bias, (0,)))


def _present(*pairs):
    return [(variable, sides) for variable, sides in pairs if variable is not None]
