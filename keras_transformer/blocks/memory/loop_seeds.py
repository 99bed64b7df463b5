"""Random numbers inside of loops."""

import contextlib

import keras
from keras import ops

from keras_transformer.backend import keras_private

# More draws than one generator makes in one round.
_DRAWS = 1024


def seeded_iterations(layer, training=None):
    """Lets the generators inside a layer draw in a loop, where their states cannot be written back.

    Args:
        layer: its generators, and those of its parts.
        training: bool or None. Nothing is drawn where it is not True.

    Returns:
        Function of the round, int32 `()`, to a context in which `layer` may be called: draws differ from round to round.
    """
    parts = [value for part in keras_private.flatten_layers(layer) for value in vars(part).values()]
    generators = {id(part): part for part in parts if isinstance(part, keras.random.SeedGenerator)}.values()
    if not training or not generators:
        return lambda index: contextlib.nullcontext()
    # Hashed, so that the rounds of one step draw nothing that those of another do.
    seeds = [keras.random.randint((2,), 0, 2**31 - 1, seed=generator) for generator in generators]
    others = [(variable, variable.value) for variable in layer.variables]

    def within(index):
        states = [
            (generator.state, ops.cast(seed, generator.state.dtype) + ops.cast(index * _DRAWS, generator.state.dtype))
            for generator, seed in zip(generators, seeds, strict=True)
        ]
        return keras.StatelessScope(others + states)

    return within
