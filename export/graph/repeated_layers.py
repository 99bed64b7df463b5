"""Layers that repeat, such as the blocks of an encoder, are traced once: their other calls use the same function.

Tracing takes Python time for every operation, and so does whatever looks at the graph afterwards. Two layers repeat each
other if their classes, their configs, those of their parts and the shapes of their weights are equal. What is written is
compared with the model, which computes every layer by itself, so that a config that leaves something out is found.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import threading
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import keras
import tensorflow as tf

from keras_transformer.backend import keras_private
from keras_transformer.backend.compilation.equal_layers import key_of
from keras_transformer.backend.compilation.layer_call import LayerCall
from keras_transformer.export.graph.replaced_layers import methods_set
from keras_transformer.utils.types import Tensor

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

# `call` of a layer.
_Call: TypeAlias = Callable[..., Any]

# In the name of every function that is made here.
MARK = "repeated_layer"
# In front of the names of those arguments of a function that are weights.
WEIGHT = "weight_"
# Layers with fewer parts gain nothing.
_FEWEST_PARTS = 3


class RepeatedLayers:
    """The layers of a model that repeat one another.

    Args:
        layers: list of `keras.layers.Layer`, each before its own parts.
    """

    def __init__(self, layers: Sequence[keras.layers.Layer]) -> None:
        self._repeating = self._repeated(layers)

    @property
    def has_any(self) -> bool:
        """bool: whether there are layers that repeat."""
        return bool(self._repeating)

    @staticmethod
    def _repeated(layers: Sequence[keras.layers.Layer]) -> list[tuple[keras.layers.Layer, Hashable]]:
        """The outermost layers that repeat, and what they have in common with those that they repeat."""
        groups: dict[Hashable, list[keras.layers.Layer]] = collections.defaultdict(list)
        seen: set[int] = set()
        for layer in layers:
            parts = [] if id(layer) in seen else keras_private.flatten_layers(layer, include_self=False)
            key = key_of(layer, parts) if len(parts) >= _FEWEST_PARTS else None
            if key is not None:
                groups[key].append(layer)
                seen.update(map(id, parts))
        return [(each, key) for key, found in groups.items() if len(found) > 1 for each in found]

    @contextlib.contextmanager
    def traced_once(self, scope: keras.StatelessScope) -> Generator[None, None, None]:
        """Context for tracing one signature, in which this thread's calls of these layers share functions.

        Args:
            scope: the `StatelessScope` with the tensors of all weights.
        """
        trace = _Trace(scope)
        with methods_set([(layer, "call", trace.sharing(layer, key)) for layer, key in self._repeating]):
            yield


class _Trace:
    """The functions of one signature."""

    def __init__(self, scope: keras.StatelessScope) -> None:
        self._scope, self._thread = scope, threading.get_ident()
        self._functions: dict[Hashable, _Function | None] = {}
        self._depth = 0

    def sharing(self, layer: keras.layers.Layer, key: Hashable) -> _Call:
        """`layer.call` by a function that the layers of the same key share."""
        original = layer.call

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            # Functions are made in this thread's graphs only; what repeats within a layer that repeats is not told apart.
            if threading.get_ident() != self._thread or self._depth or tf.executing_eagerly():
                return original(*args, **kwargs)
            return self._shared(layer, original, key, args, kwargs)

        return call

    def _shared(
        self, layer: keras.layers.Layer, original: _Call, key: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        found = LayerCall.of((args, kwargs))
        try:
            key = (key, found.key)
        except TypeError:
            return original(*args, **kwargs)
        if key not in self._functions:
            self._functions[key] = self._made(layer, original, found)
        function = self._functions[key]
        return original(*args, **kwargs) if function is None else function(found.tensors, self._weights(layer))

    def _weights(self, layer: keras.layers.Layer) -> list[tf.Tensor]:
        return [self._scope.get_current_value(each) for each in layer.variables]

    def _made(self, layer: keras.layers.Layer, original: _Call, call: LayerCall) -> _Function | None:
        """The function of a layer; None if it reads more than its arguments and weights."""
        weights = self._weights(layer)
        if any(each is None for each in weights):
            return None
        self._depth += 1
        try:
            function = _Function(layer, original, call, weights, len(self._functions))
        finally:
            self._depth -= 1
        return function if function.is_closed else None


class _Function:
    """A layer as a TensorFlow function of the tensors in its arguments and of those weights that it reads."""

    def __init__(
        self, layer: keras.layers.Layer, original: _Call, call: LayerCall, weights: Sequence[Tensor], number: int
    ) -> None:
        self._name = f"{MARK}_{number}"
        self._outputs = LayerCall(None, [])
        self._read = list(range(len(weights)))
        self._function = self._traced(layer, original, call, weights)
        arguments = self._function.graph.inputs[len(call.tensors) : len(call.tensors) + len(weights)]
        read = [number for number, each in enumerate(arguments) if each.consumers()]
        if read != self._read:
            self._read = read
            self._function = self._traced(layer, original, call, weights)

    def _traced(
        self, layer: keras.layers.Layer, original: _Call, call: LayerCall, weights: Sequence[Tensor]
    ) -> ConcreteFunction:
        count, variables = len(call.tensors), [layer.variables[number] for number in self._read]

        def traced(*tensors: Tensor) -> list[Tensor]:
            args, kwargs = call.filled(tensors[:count])
            with keras.StatelessScope(state_mapping=list(zip(variables, tensors[count:], strict=True))):
                outputs = original(*args, **kwargs)
            self._outputs = LayerCall.of(outputs)
            return self._outputs.tensors

        traced.__name__ = self._name
        specs = [tf.TensorSpec(each.shape, each.dtype, f"tensor_{number}") for number, each in enumerate(call.tensors)]
        for number in self._read:
            specs.append(tf.TensorSpec(weights[number].shape, weights[number].dtype, f"{WEIGHT}{number}"))
        return tf.function(traced, autograph=False).get_concrete_function(*specs)

    @property
    def is_closed(self) -> bool:
        """Whether it reads nothing but its arguments."""
        return not self._function.captured_inputs

    def __call__(self, tensors: Sequence[Tensor], weights: Sequence[Tensor]) -> Any:
        results = self._function(*tensors, *(weights[number] for number in self._read))
        return self._outputs.filled(results)
