"""Loops: iterations that do not overlap, lists of rows, and random numbers in bodies, which update no seed generators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    import tensorflow as tf

# More draws than one generator makes in an iteration.
_DRAWS = 1024


def sequential_loop(
    condition: Callable[..., object], body: Callable[..., object], state: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Returns `keras.ops.while_loop(condition, body, state)`, with the memory of one iteration.

    TensorFlow, outside of XLA, begins up to ten iterations before the first ends, wherever one does not need the results of
    the one before, and keeps the tensors of all.

    Example:

    >>> [int(x) for x in sequential_loop(lambda i, x: i < 3, lambda i, x: (i + 1, 2 * x), (0, 1))]
    [3, 8]
    """
    if keras.backend.backend() != "tensorflow":
        return ops.while_loop(condition, body, state)
    import tensorflow as tf

    return tf.while_loop(condition, body, state, parallel_iterations=1)


def row_list(like: Tensor, count: int | Tensor) -> tf.TensorArray:
    """Returns an empty `tf.TensorArray` of `count` rows.

    Args:
        like: tensor `(n, ...)` whose rows have the dtype and shape of the new ones.
        count: int or int tensor `()`.
    """
    import tensorflow as tf

    return tf.TensorArray(like.dtype, count, element_shape=like.shape[1:])


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
