"""Random numbers of Keras, replaced."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TypeAlias

import keras
from keras import ops

from keras_transformer.utils.types import DType, Shape, Tensor

Seed: TypeAlias = "int | keras.random.SeedGenerator | None"

_NAMES = ("normal", "uniform", "dropout")
_lock = threading.RLock()


@contextlib.contextmanager
def replaced_draws(draw: Callable[[str, Shape], Tensor]) -> Iterator[None]:
    """Context in which this thread's normal and uniform random numbers, and those of dropout, come from a function.

    Other random numbers, such as integers and categories, stay as they are.

    Args:
        draw: maps `"normal"` or `"uniform"`, for numbers with mean 0 and deviation 1, or from 0 to 1, and a shape to a
            float32 tensor.
    """
    from keras.src import backend

    module: ModuleType = backend.random
    numbers, thread = _Numbers(draw), threading.get_ident()

    def replaced(name: str, before: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def called(*arguments: object, **options: object) -> Tensor:
            function = getattr(numbers, name) if threading.get_ident() == thread else before
            return function(*arguments, **options)

        return called

    with _lock:
        before = {name: getattr(module, name) for name in _NAMES}
        try:
            for name, function in before.items():
                setattr(module, name, replaced(name, function))
            yield
        finally:
            for name, function in before.items():
                setattr(module, name, function)


class _Numbers:
    """Functions of `keras.random` that make their numbers of those that another one draws."""

    def __init__(self, draw: Callable[[str, Shape], Tensor]) -> None:
        self._draw = draw

    def normal(
        self, shape: Shape, mean: float = 0.0, stddev: float = 1.0, dtype: DType = None, seed: Seed = None
    ) -> Tensor:
        return ops.cast(self._draw("normal", shape), dtype or keras.config.floatx()) * stddev + mean

    def uniform(
        self, shape: Shape, minval: float = 0.0, maxval: float = 1.0, dtype: DType = None, seed: Seed = None
    ) -> Tensor:
        drawn = ops.cast(self._draw("uniform", shape), dtype or keras.config.floatx())
        return drawn * (maxval - minval) + minval

    def dropout(self, inputs: Tensor, rate: float, noise_shape: Shape | None = None, seed: Seed = None) -> Tensor:
        shape = ops.shape(inputs)
        if noise_shape is not None:
            sizes = zip(shape, noise_shape, strict=True)
            shape = tuple(size if given is None else given for size, given in sizes)
        is_kept = self._draw("uniform", shape) >= rate
        return ops.where(is_kept, inputs / (1.0 - rate), ops.zeros_like(inputs))
