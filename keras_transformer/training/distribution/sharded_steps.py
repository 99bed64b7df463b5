"""Training steps in which layers gather their weights, and split their outputs, over the devices of a mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.backend.devices.gathered_weights import gathered_weights
from keras_transformer.backend.devices.split_rows import SEQUENCE, axis_size
from keras_transformer.blocks.block import Block
from keras_transformer.utils.types import Tensor

Wrap = Callable[[keras.layers.Layer, Callable[..., Any]], Callable[..., Any]]


def gather_in_steps(model: keras.Model) -> None:
    """Makes the steps of `fit` and `evaluate` gather the weights of each layer outside of blocks; blocks gather their own.

    Args:
        model: `keras.Model`, built in a `keras.distribution.ModelParallel` whose layouts split weights along its batch axis.
    """

    def wrap(layer, call):
        def gathering(*args, **kwargs):
            with gathered_weights(layer):
                return call(*args, **kwargs)

        return gathering

    _wrap_steps(model, _outside_of_blocks(model), wrap)


def split_rows_in_steps(model: keras.Model, mesh: keras.distribution.DeviceMesh) -> None:
    """Makes the steps of `fit` and `evaluate` split the outputs of layers by rows, `(B, T, D)` along T.

    Args:
        model: `keras.Model`.
        mesh: `keras.distribution.DeviceMesh` with the axes "batch" and "sequence".
    """
    layout = keras.distribution.TensorLayout(("batch", SEQUENCE, None), mesh)
    size = axis_size(mesh, SEQUENCE)

    def split(x: Tensor) -> Tensor:
        is_row = len(x.shape) == 3 and x.shape[1] % size == 0 and keras.backend.is_float_dtype(x.dtype)
        return keras.distribution.distribute_tensor(x, layout) if is_row else x

    def wrap(layer, call):
        return lambda *args, **kwargs: keras.tree.map_structure(split, call(*args, **kwargs))

    _wrap_steps(model, _outside_of_models(model), wrap)


def _wrap_steps(model: keras.Model, layers: Iterable[keras.layers.Layer], wrap: Wrap) -> None:
    """Makes the steps of a model call layers as `wrap(layer, call)`."""
    layers = list({id(layer): layer for layer in layers}.values())  # Some are in a model and in its backbone.

    def wrapped(step: Callable[..., object]) -> Callable[..., Any]:
        def with_wrapped_layers(*args):
            with keras_private.wrapped_calls(layers, wrap):
                return step(*args)

        return with_wrapped_layers

    model.train_step, model.test_step = wrapped(model.train_step), wrapped(model.test_step)


def _outside_of_blocks(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the outermost layers in a layer that neither are nor have blocks or models."""
    if isinstance(layer, Block):
        return []
    if not any(isinstance(each, (Block, keras.Model)) for each in keras_private.flatten_layers(layer)):
        return [layer]
    return [part for child in keras_private.direct_layers(layer) for part in _outside_of_blocks(child)]


def _outside_of_models(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the outermost layers in a model that are no models."""
    if not isinstance(layer, keras.Model):
        return [layer]
    return [part for child in keras_private.direct_layers(layer) for part in _outside_of_models(child)]
