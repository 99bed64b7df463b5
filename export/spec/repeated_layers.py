"""Layers that repeat, such as the blocks of an encoder, are traced once: their other calls use the same function.

Tracing takes Python time for every operation, and so does whatever looks at the graph afterwards. Two layers repeat each
other if their classes, their configs, those of their parts and the shapes of their weights are equal. What is written is
compared with the model, which computes every layer by itself, so that a config that leaves something out is found.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_transformer.backend import keras_private

# In the name of every function that is made here.
MARK = "repeated_layer"
# In front of the names of those arguments of a function that are weights.
WEIGHT = "weight_"
# Layers with fewer parts gain nothing.
_FEWEST_PARTS = 3
_NAMES = ("name", "build_config")


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
    def _repeated(layers: Sequence[keras.layers.Layer]) -> list[tuple[keras.layers.Layer, Any]]:
        """The outermost layers that repeat, and what they have in common with those that they repeat."""
        groups: dict[Any, list[keras.layers.Layer]] = collections.defaultdict(list)
        seen: set[int] = set()
        for layer in layers:
            parts = [] if id(layer) in seen else keras_private.flatten_layers(layer, include_self=False)
            key = _key_of(layer, parts) if len(parts) >= _FEWEST_PARTS else None
            if key is not None:
                groups[key].append(layer)
                seen.update(map(id, parts))
        return [(each, key) for key, found in groups.items() if len(found) > 1 for each in found]

    @contextlib.contextmanager
    def traced_once(self, scope: keras.StatelessScope) -> Iterator[None]:
        """Context for tracing one signature, in which this thread's calls of these layers share functions.

        Args:
            scope: the `StatelessScope` with the tensors of all weights.
        """
        trace = _Trace(scope)
        for layer, key in self._repeating:
            vars(layer)["call"] = trace.sharing(layer, key)
        try:
            yield
        finally:
            for layer, _ in self._repeating:
                del vars(layer)["call"]


def _key_of(layer: keras.layers.Layer, parts: Sequence[keras.layers.Layer]) -> Any:
    """What layers that compute the same have in common; None for a layer whose config does not tell."""
    if isinstance(layer, keras.Model) or not layer.built or not layer.variables:
        return None
    if any("call" in vars(each) for each in (layer, *parts)):  # It was replaced, for this object alone.
        return None
    config = _config_of(layer)
    if config is None:
        return None
    # An attribute of a part may have changed since the layer was built, which only the part's own config tells.
    configs = (config, *map(_config_of, parts))
    return type(layer), configs, tuple((tuple(each.shape), str(each.dtype)) for each in layer.variables)


def _config_of(layer: keras.layers.Layer) -> str | None:
    """The config of a layer without names; None for a layer that has none."""
    try:
        return json.dumps(_without_names(keras.saving.serialize_keras_object(layer)), sort_keys=True)
    except Exception:  # Whatever a layer of the user raises.
        return None


def _without_names(config: Any) -> Any:
    if isinstance(config, dict):
        return {key: _without_names(value) for key, value in config.items() if key not in _NAMES}
    return [_without_names(each) for each in config] if isinstance(config, (list, tuple)) else config


@dataclasses.dataclass(frozen=True)
class _Call:
    """The arguments of a call: what they are but for the values of the tensors, and the tensors, each once.

    Args:
        structure: the arguments with a number, a `_Place`, for each tensor.
        tensors: the tensors.
    """

    structure: Any
    tensors: list[Any]

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The arguments with other tensors."""
        fill = lambda each: tensors[each.number] if isinstance(each, _Place) else each  # noqa: E731
        return keras.tree.map_structure(fill, self.structure)

    @property
    def key(self) -> Any:
        """Equal for calls that differ in the values of tensors only."""
        leaves = tuple((type(each), each) for each in keras.tree.flatten(self.structure))
        hash(leaves)  # Arrays, for example, have none.
        shapes = tuple((str(each.shape), each.dtype) for each in self.tensors)
        return repr(keras.tree.map_structure(lambda _: 0, self.structure)), leaves, shapes


@dataclasses.dataclass(frozen=True)
class _Place:
    number: int


def _call_of(arguments: Any) -> _Call:
    """A call whose tensors bring their masks as further arguments."""
    tensors: list[Any] = []
    numbers: dict[int, _Place] = {}

    def place(each: Any) -> Any:
        if not tf.is_tensor(each):
            return each
        if id(each) not in numbers:
            numbers[id(each)] = _Place(len(tensors))
            tensors.append(each)
        return numbers[id(each)]

    masks = lambda each: keras_private.get_mask(each) if tf.is_tensor(each) else None  # noqa: E731
    structure = keras.tree.map_structure(place, arguments)
    return _Call((structure, keras.tree.map_structure(place, keras.tree.map_structure(masks, arguments))), tensors)


def _set_masks(values: Any, masks: Any) -> None:
    for each, mask in zip(keras.tree.flatten(values), keras.tree.flatten(masks), strict=True):
        if tf.is_tensor(each):
            keras_private.set_mask(each, mask)


class _Trace:
    """The functions of one signature."""

    def __init__(self, scope: keras.StatelessScope) -> None:
        self._scope, self._thread = scope, threading.get_ident()
        self._functions: dict[Any, _Function | None] = {}
        self._depth = 0

    def sharing(self, layer: keras.layers.Layer, key: Any) -> Callable[..., Any]:
        """`layer.call` by a function that the layers of the same key share."""
        original = layer.call

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            # Functions are made in this thread's graphs only; what repeats within a layer that repeats is not told apart.
            if threading.get_ident() != self._thread or self._depth or tf.executing_eagerly():
                return original(*args, **kwargs)
            return self._shared(layer, original, key, args, kwargs)

        return call

    def _shared(self, layer: Any, original: Any, key: Any, args: Any, kwargs: Any) -> Any:
        found = _call_of((args, kwargs))
        try:
            key = (key, found.key)
        except TypeError:
            return original(*args, **kwargs)
        if key not in self._functions:
            self._functions[key] = self._made(layer, original, found)
        function = self._functions[key]
        return original(*args, **kwargs) if function is None else function(found.tensors, self._weights(layer))

    def _weights(self, layer: keras.layers.Layer) -> list[Any]:
        return [self._scope.get_current_value(each) for each in layer.variables]

    def _made(self, layer: keras.layers.Layer, original: Any, call: _Call) -> _Function | None:
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

    def __init__(self, layer: Any, original: Any, call: _Call, weights: Sequence[Any], number: int) -> None:
        self._name = f"{MARK}_{number}"
        self._outputs = _Call(None, [])
        self._read = list(range(len(weights)))
        self._function = self._traced(layer, original, call, weights)
        arguments = self._function.graph.inputs[len(call.tensors) : len(call.tensors) + len(weights)]
        read = [number for number, each in enumerate(arguments) if each.consumers()]
        if read != self._read:
            self._read = read
            self._function = self._traced(layer, original, call, weights)

    def _traced(self, layer: Any, original: Any, call: _Call, weights: Sequence[Any]) -> Any:
        count, variables = len(call.tensors), [layer.variables[number] for number in self._read]

        def traced(*tensors: Any) -> list[Any]:
            (args, kwargs), masks = call.filled(tensors[:count])
            _set_masks((args, kwargs), masks)
            with keras.StatelessScope(state_mapping=list(zip(variables, tensors[count:], strict=True))):
                outputs = original(*args, **kwargs)
            self._outputs = _call_of(outputs)
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

    def __call__(self, tensors: Sequence[Any], weights: Sequence[Any]) -> Any:
        results = self._function(*tensors, *(weights[number] for number in self._read))
        outputs, masks = self._outputs.filled(results)
        _set_masks(outputs, masks)
        return outputs
