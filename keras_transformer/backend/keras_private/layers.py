"""Layers: their parts, kernels, further variables, and the conversion of their inputs."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras


def flatten_layers(layer: keras.layers.Layer, include_self: bool = True) -> list[keras.layers.Layer]:
    """Returns the layers in `layer` at any depth, and `layer` itself if `include_self`."""
    return list(layer._flatten_layers(include_self=include_self))


def direct_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns the layers directly in `layer`, in the order of their creation."""
    return list(layer._layers)


def kernel(layer: keras.layers.Layer) -> keras.Variable:
    """Returns the kernel of a `Dense` or `EinsumDense` layer as stored: without LoRA, not dequantized."""
    return layer._kernel


def weight(layer: keras.layers.Layer, name: str) -> keras.Variable:
    """Returns a weight as stored, without LoRA, by the name of the attribute that a layer's `call` reads."""
    return vars(layer).get(name, vars(layer).get(f"_{name}"))


class ExplicitScores:
    """Mixin of `MultiHeadAttention` and `GroupQueryAttention` without the fused kernel: their softmax is a layer's call."""

    def _compute_attention(self, *args: object, **kwargs: object) -> object:
        plain = super()._compute_attention  # type: ignore[misc]
        bound = inspect.signature(plain).bind(*args, **kwargs)
        if not vars(self).get("_flash_attention"):
            if isinstance(self, keras.layers.GroupQueryAttention):
                self._return_attention_scores = True
            else:
                bound.arguments["return_attention_scores"] = True
        return plain(*bound.args, **bound.kwargs)


def embeddings(layer: keras.layers.Embedding) -> keras.Variable:
    """Returns the table of an `Embedding` layer as stored: without LoRA, not dequantized."""
    return layer._embeddings


def own_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Returns the weights that are attributes of `layer` itself, frozen ones included, without states and statistics."""
    return list(layer._trainable_variables)


def seed_generators(layer: keras.layers.Layer) -> list[keras.random.SeedGenerator]:
    """Returns the seed generators that are attributes of `layer` itself."""
    return list(layer._seed_generators)


@contextlib.contextmanager
def unlocked(layer: keras.layers.Layer) -> Iterator[None]:
    """Context in which a built layer can get further variables, or lose some."""
    layer._tracker.unlock()
    try:
        yield
    finally:
        layer._tracker.lock()


def remove_variables(layer: keras.layers.Layer, names: Iterable[str]) -> None:
    """Deletes attributes of a built layer that hold variables, which `layer.variables` then no longer lists."""
    with unlocked(layer):
        for name in names:
            layer._untrack_variable(getattr(layer, name))
            # Not that of `Layer`, which collects garbage each time: minutes for the adapters of a large traced model.
            super(keras.layers.Layer, layer).__delattr__(name)


def converts_inputs(layer: keras.layers.Layer) -> bool:
    """Returns whether calls of `layer` cast their float arguments to the compute dtype."""
    return layer._convert_input_args


class _Thread(threading.local):
    """What belongs to the calling thread."""

    def __init__(self) -> None:
        self.unconverted_layers: set[int] = set()  # Ids of the layers that are in `unconverted_inputs`.


_thread = _Thread()


class InputConversion:
    """Mixin of a layer whose input conversion `unconverted_inputs` disables for one thread.

    Keras's attribute is one for all threads: a thread that clears it changes what another thread's call computes.
    """

    @property
    def _convert_input_args(self) -> bool:
        return vars(self).get("_converts_inputs", True) and id(self) not in _thread.unconverted_layers

    @_convert_input_args.setter
    def _convert_input_args(self, value: bool) -> None:
        vars(self)["_converts_inputs"] = value


@contextlib.contextmanager
def unconverted_inputs(layer: InputConversion) -> Iterator[None]:
    """Context in which this thread's calls of `layer` receive their arguments as they are, not cast to the compute dtype."""
    layers = _thread.unconverted_layers
    is_outermost = id(layer) not in layers
    layers.add(id(layer))
    try:
        yield
    finally:
        if is_outermost:
            layers.discard(id(layer))


@contextlib.contextmanager
def wrapped_calls(
    layers: Iterable[keras.layers.Layer],
    wrap: Callable[[keras.layers.Layer, Callable[..., Any]], Callable[..., object]],
) -> Iterator[None]:
    """Context in which `call` of each layer is `wrap(layer, call)`.

    Not by `setattr`: Keras would look for variables in the function, and collect garbage when it is deleted.
    """
    layers = list(layers)
    before = [vars(layer).get("call") for layer in layers]
    try:
        for layer in layers:
            vars(layer)["call"] = wrap(layer, layer.call)
        yield
    finally:
        for layer, call in zip(layers, before, strict=True):
            del vars(layer)["call"]
            if call is not None:
                vars(layer)["call"] = call
