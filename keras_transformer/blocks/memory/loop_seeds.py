"""Random numbers in loops, whose bodies cannot update seed generators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.utils.types import Tensor

# More draws than one generator makes in an iteration.
_DRAWS = 1024


def seeded_iterations(
    layer: keras.layers.Layer, training: bool | None = None
) -> Callable[[Tensor], contextlib.AbstractContextManager]:
    """Replaces the states of the seed generators of a layer within the iterations of a loop.

    Args:
        layer: its own generators and those of its sublayers are replaced.
        training: bool or None. Unless True, nothing is replaced.

    Returns:
        A function of the iteration, int32 `()`, that returns a context to call `layer` in. Draws differ by iteration.
    """
    parts = [value for part in keras_private.flatten_layers(layer) for value in vars(part).values()]
    generators = {id(part): part for part in parts if isinstance(part, keras.random.SeedGenerator)}.values()
    if not training or not generators:
        return lambda index: contextlib.nullcontext()
    # Random seeds, so that iterations of one training step do not repeat the draws of another.
    seeds = [keras.random.randint((2,), 0, 2**31 - 1, seed=generator) for generator in generators]
    others = [(variable, variable.value) for variable in layer.variables]

    def within(index):
        states = [
            (generator.state, ops.cast(seed, generator.state.dtype) + ops.cast(index * _DRAWS, generator.state.dtype))
            for generator, seed in zip(generators, seeds, strict=True)
        ]
        return keras.StatelessScope(others + states)

    return within
