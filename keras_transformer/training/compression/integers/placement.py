"""Which activations of a model are rounded: those that integer files have between their operators.

A model is traced once. Every float tensor that a layer reads or returns is rounded, once: not before a norm that is folded
into the weights, not before a rectifier that the operator before it computes, and not after layers that only move numbers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator

import keras
from keras import layers

from keras_transformer.backend import keras_private
from keras_transformer.training.compression.integers.layers import (
    CELLS,
    PRODUCTS,
    RECTIFIERS,
    Placement,
    is_float_tensor,
)
from keras_transformer.utils.types import Tensor, Tensors

# What they return are numbers of what they read.
_MOVERS = (
    *(
        layers.Flatten,
        layers.Reshape,
        layers.Permute,
        layers.RepeatVector,
        layers.Identity,
        layers.ActivityRegularization,
    ),
    *(layers.Dropout, layers.SpatialDropout1D, layers.SpatialDropout2D, layers.SpatialDropout3D),
    *(layers.GaussianDropout, layers.GaussianNoise, layers.AlphaDropout, layers.Masking),
    *(layers.ZeroPadding1D, layers.ZeroPadding2D, layers.ZeroPadding3D),
    *(layers.Cropping1D, layers.Cropping2D, layers.Cropping3D),
    *(layers.UpSampling1D, layers.UpSampling2D, layers.UpSampling3D),
    *(layers.MaxPooling1D, layers.MaxPooling2D, layers.MaxPooling3D),
    *(layers.GlobalMaxPooling1D, layers.GlobalMaxPooling2D, layers.GlobalMaxPooling3D),
)
# Layers whose operators compute a rectifier that follows.
_SUMS = (layers.BatchNormalization, layers.Add, layers.Subtract, layers.Multiply)
_KNOWN = ("keras", "keras_transformer", "keras_hub")


@dataclasses.dataclass
class _Call:
    """A call of a layer, with the float tensors that it reads and returns."""

    layer: keras.layers.Layer
    inputs: list[Tensor]
    outputs: list[Tensor] = dataclasses.field(default_factory=list)
    is_leaf: bool = True


def placements(model: keras.Model) -> dict[int, Placement]:
    """The activations of a Functional model that are rounded, by the ids of the layers."""
    calls, ends = _traced(model)
    readers: dict[int, list[_Call]] = {}
    for call in calls:
        for x in call.inputs:
            readers.setdefault(id(x), []).append(call)
    known, found = set[int](), dict[int, Placement]()
    for call in calls:
        if _is_foreign(call.layer):
            continue
        inputs, has_output = found.get(id(call.layer), Placement())
        inputs |= {position for position, x in enumerate(call.inputs) if id(x) not in known}
        known |= {id(x) for x in call.inputs}
        if len(call.outputs) == 1:
            (output,) = map(id, call.outputs)
            follower = None if output in ends or len(readers.get(output, ())) != 1 else readers[output][0].layer
            has_output |= not isinstance(call.layer, _MOVERS) and not _is_fused(call.layer, follower)
            known.add(output)
        found[id(call.layer)] = Placement(inputs, has_output)
    _name_foreign({call.layer.path or call.layer.name: call.layer for call in calls if _is_foreign(call.layer)})
    return found


def _traced(model: keras.Model) -> tuple[list[_Call], set[int]]:
    """The calls of layers without parts, in their order, and the ids of the outputs of the model."""
    calls: list[_Call] = []
    stack: list[_Call] = []
    ends: list[Tensor] = []

    def wrap(layer: keras.layers.Layer, call: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*args: object, **kwargs: object) -> object:
            own = _Call(layer, _tensors((args, kwargs)))
            if stack:
                # The states of cells stay float: for quantizers, a recurrent layer has no parts.
                if isinstance(layer, CELLS) or isinstance(stack[-1].layer, layers.RNN):
                    return call(*args, **kwargs)
                stack[-1].is_leaf = False
            stack.append(own)
            try:
                outputs = call(*args, **kwargs)
            finally:
                stack.pop()
            own.outputs = _tensors(outputs) if not isinstance(outputs, (list, tuple, dict)) else []
            calls.append(own)
            return outputs

        return wrapped

    def run(inputs: Tensors) -> Tensors:
        with keras_private.wrapped_calls(keras_private.flatten_layers(model, include_self=False), wrap):
            outputs = model(inputs, training=False)
        ends.extend(_tensors(outputs))
        return outputs

    inputs = [keras.Input(batch_shape=each.shape, dtype=each.dtype) for each in model.inputs]
    with _without_casts(model):
        _Traced(run)(keras_private.pack_inputs(keras_private.functional(model), inputs))
    return [each for each in calls if each.is_leaf], {id(each) for each in ends}


@contextlib.contextmanager
def _without_casts(model: keras.Model) -> Iterator[None]:
    """Context in which layers in mixed precision compute in float32: a cast would make another tensor."""
    every = keras_private.flatten_layers(model)
    policies = {layer: layer.dtype_policy for layer in every if layer.variable_dtype == "float32"}
    try:
        for layer in policies:
            layer.dtype_policy = "float32"
        yield
    finally:
        for layer, policy in policies.items():
            layer.dtype_policy = policy


class _Traced(layers.Layer):
    """A function as a layer, which a call with symbolic tensors traces on any backend."""

    def __init__(self, function: Callable[[Tensors], Tensors]) -> None:
        super().__init__(dtype="float32")
        self._function = function

    def call(self, inputs: Tensors) -> Tensors:
        return self._function(inputs)


def _tensors(structure: object) -> list[Tensor]:
    return [each for each in keras.tree.flatten(structure) if is_float_tensor(each)]


def _is_fused(layer: keras.layers.Layer, follower: keras.layers.Layer | None) -> bool:
    """Whether files have no tensor between a layer and the only one that reads what it returns."""
    function = vars(layer).get("activation")
    is_linear_product = isinstance(layer, PRODUCTS) and function in (None, keras.activations.linear)
    if isinstance(follower, layers.BatchNormalization):
        return is_linear_product
    return (is_linear_product or isinstance(layer, _SUMS)) and _is_rectifier(follower)


def _is_rectifier(layer: keras.layers.Layer | None) -> bool:
    if layer is None:
        return False
    if isinstance(layer, layers.ReLU):
        return layer.max_value in (None, 6) and layer.negative_slope == 0 and layer.threshold == 0
    return isinstance(layer, layers.Activation) and layer.activation in RECTIFIERS


def _is_foreign(layer: keras.layers.Layer) -> bool:
    """Whether a layer computes what only its author knows."""
    return type(layer).__module__.partition(".")[0] not in _KNOWN and not isinstance(layer, PRODUCTS)


def _name_foreign(found: dict[str, keras.layers.Layer]) -> None:
    """Warns of layers whose weights are not rounded."""
    names = [f"{path!r} ({type(layer).__name__})" for path, layer in found.items() if layer.weights]
    if names:
        warnings.warn(
            f"{', '.join(names)}: weights of layers that neither Keras nor keras_transformer has are not rounded while they "
            "train; those of layers inside are",
            stacklevel=5,
        )
