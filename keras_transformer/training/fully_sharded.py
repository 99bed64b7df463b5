"""Training steps that gather fully sharded weights layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_transformer.backend import keras_private
from keras_transformer.backend.gathered_weights import gathered_weights
from keras_transformer.blocks.block import Block


def gather_in_steps(model: keras.Model) -> None:
    """Makes the steps of `fit` and `evaluate` gather the weights of each layer outside of blocks; blocks gather their own.

    Args:
        model: `keras.Model`, built in a `keras.distribution.ModelParallel` whose layouts split weights along its batch axis.
    """
    model.train_step = _gathering(model, model.train_step)
    model.test_step = _gathering(model, model.test_step)


def _gathering(model: keras.Model, step: Callable[..., Any]) -> Callable[..., Any]:
    def wrap(layer, call):
        def gathering(*args, **kwargs):
            with gathered_weights(layer):
                return call(*args, **kwargs)

        return gathering

    def gathering_step(*args):
        layers = {id(layer): layer for layer in _outside_of_blocks(model)}  # Some are in a model and in its backbone.
        with keras_private.wrapped_calls(layers.values(), wrap):
            return step(*args)

    return gathering_step


def _outside_of_blocks(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the outermost layers in a layer that neither are nor have blocks or models."""
    if isinstance(layer, Block):
        return []
    if not any(isinstance(each, (Block, keras.Model)) for each in keras_private.flatten_layers(layer)):
        return [layer]
    return [part for child in keras_private.direct_layers(layer) for part in _outside_of_blocks(child)]
