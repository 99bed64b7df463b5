"""Layers that are traced in another form: what they compute in TensorFlow is the obstacle, not an operation."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

import keras


def _always(layer: keras.layers.Layer, *args: object, **kwargs: object) -> bool:
    return True


@dataclasses.dataclass(frozen=True)
class ReplacedLayer:
    """A class of layers, and what takes the place of one of its methods while a signature is traced.

    Args:
        layer: the class; its subclasses count as well.
        method: name of the method.
        function: takes the layer and the arguments of the method.
        applies: whether that is to be done with a layer and these arguments; to all by default.
    """

    layer: type[keras.layers.Layer]
    method: str
    function: Callable[..., Any]
    applies: Callable[..., bool] = _always


@contextlib.contextmanager
def replaced(
    layers: Sequence[keras.layers.Layer], replacements: Sequence[ReplacedLayer]
) -> Generator[None, None, None]:
    """Context in which this thread's calls of layers compute in another form.

    Args:
        layers: list of `keras.layers.Layer`.
        replacements: list of `ReplacedLayer`.
    """
    thread = threading.get_ident()
    found = [(layer, each) for layer in layers for each in replacements if isinstance(layer, each.layer)]
    with methods_set([(layer, each.method, _replaced(layer, each, thread)) for layer, each in found]):
        yield


@contextlib.contextmanager
def methods_set(methods: Sequence[tuple[keras.layers.Layer, str, Callable[..., Any]]]) -> Generator[None, None, None]:
    """Context in which layers have other methods of their own; they then have those of before.

    Args:
        methods: list of a layer, the name of a method, and what takes its place.
    """
    with contextlib.ExitStack() as stack:
        for layer, name, function in methods:
            own = layer.__dict__  # Keras would track what is set as an attribute.
            stack.callback(own.__setitem__, name, own[name]) if name in own else stack.callback(own.pop, name)
            own[name] = function
        yield


def _replaced(layer: keras.layers.Layer, replacement: ReplacedLayer, thread: int) -> Callable[..., Any]:
    original = getattr(layer, replacement.method)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread or not replacement.applies(layer, *args, **kwargs):
            return original(*args, **kwargs)
        return replacement.function(layer, *args, **kwargs)

    return call
