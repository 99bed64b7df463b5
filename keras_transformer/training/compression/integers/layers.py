"""Layers of Keras whose weights and activations are those of integer files.

A built layer gets a subclass of its own class, in which its weights are rounded, and quantizers as sublayers: of what it
reads, of what an activation function inside reads, and of what it returns.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

import keras
from keras import layers, ops

from keras_transformer.backend import keras_private
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.training.compression.fake_quantization import rounded_by_channel
from keras_transformer.training.compression.integers.activation_quantizer import ActivationQuantizer
from keras_transformer.training.compression.quantized_layers import AwareLayer, variable_scope
from keras_transformer.utils.types import Outputs, Tensor

CELLS = (layers.SimpleRNNCell, layers.GRUCell, layers.LSTMCell)
_ATTENTION = (layers.MultiHeadAttention, layers.GroupQueryAttention)
# The axes of the channels of each weight, by the layers that multiply with it.
_CHANNELS: dict[tuple[type[keras.layers.Layer], ...], Mapping[str, tuple[int, ...]]] = {
    (layers.Dense, layers.Conv1D, layers.Conv2D, layers.Conv3D): {"kernel": (-1,)},
    (layers.DepthwiseConv1D, layers.DepthwiseConv2D): {"kernel": (-2, -1)},
    (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose): {"kernel": (-2,)},
    (layers.SeparableConv1D, layers.SeparableConv2D): {"depthwise_kernel": (-2, -1), "pointwise_kernel": (-1,)},
    CELLS: {"kernel": (-1,), "recurrent_kernel": (-1,)},
    (layers.EinsumDense,): {"kernel": ()},  # By its equation.
}
PRODUCTS = tuple(each for classes in _CHANNELS if classes is not CELLS for each in classes)
# Functions that operators of integers compute with their sum.
RECTIFIERS = (keras.activations.relu, keras.activations.relu6)
# Ranges that the integer kernels of functions have.
_FIXED: dict[object, tuple[float, float]] = {
    keras.activations.softmax: (0.0, 255 / 256),
    keras.activations.sigmoid: (0.0, 255 / 256),
    keras.activations.tanh: (-1.0, 127 / 128),
}


class Placement(NamedTuple):
    """Which activations of a layer are rounded.

    Attributes:
        inputs: positions of float tensors among its arguments.
        has_output: bool. Whether what it returns is.
    """

    inputs: frozenset[int] = frozenset()
    has_output: bool = False


class IntegerLayer(AwareLayer):
    """Mixin of a layer whose weights and activations are rounded."""

    preactivation_quantizer: ActivationQuantizer | None
    output_quantizer: ActivationQuantizer | None

    def call(self: keras.layers.Layer, *args: object, **kwargs: object) -> Outputs:
        position = itertools.count()

        def quantized(x: Tensor) -> object:
            quantizer = getattr(self, _input_name(next(position)), None) if is_float_tensor(x) else None
            return x if quantizer is None else quantizer(x)

        args, kwargs = keras.tree.map_structure(quantized, (args, kwargs))
        outputs = super().call(*args, **kwargs)  # type: ignore[misc]
        return outputs if self.output_quantizer is None else self.output_quantizer(outputs)

    def enable_lora(self: keras.layers.Layer, *args: object, **kwargs: object) -> NoReturn:
        raise WeightQuantizationError(f"{self.path!r} trains with the integers of its weights, and takes no adapter")


class _IntegerAttention(keras_private.ExplicitScores, IntegerLayer):
    """Mixin of an attention layer of Keras: its scores and weights are tensors that its softmax reads and returns."""


@functools.cache
def _integer_class(plain: type[keras.layers.Layer]) -> type[keras.layers.Layer]:
    properties: dict[str, object] = {name: _rounded_weight(name) for name in _channels_of_class(plain)}
    if issubclass(plain, PRODUCTS):
        properties["activation"] = property(_activation)
    mixin = _IntegerAttention if issubclass(plain, _ATTENTION) else IntegerLayer
    body = {**properties, "plain_class": plain, "__module__": __name__}
    return type(f"Integer{plain.__name__}", (mixin, plain), body)


def _rounded_weight(name: str) -> property:
    return property(lambda layer: ops.cast(_rounded(layer, name), layer.compute_dtype))


def _rounded(layer: keras.layers.Layer, name: str) -> Tensor:
    """A rounded weight, float32."""
    with keras_private.autocast_scope(None):
        weight = ops.cast(ops.convert_to_tensor(keras_private.weight(layer, name)), "float32")
    return rounded_by_channel(weight, _channels_of(layer)[name])


def _activation(layer: keras.layers.Layer) -> Callable[[Tensor], Tensor] | None:
    """The activation function of a product, with the rounding of what it reads."""
    function, quantizer = vars(layer)["activation"], layer.preactivation_quantizer
    return function if quantizer is None else lambda x: function(quantizer(x))


def _channels_of_class(plain: type[keras.layers.Layer]) -> Mapping[str, tuple[int, ...]]:
    return next((channels for classes, channels in _CHANNELS.items() if issubclass(plain, classes)), {})


def _channels_of(layer: keras.layers.Layer) -> Mapping[str, tuple[int, ...]]:
    """The axes of the channels of the weights of a layer, by the names of their attributes."""
    if not isinstance(layer, layers.EinsumDense):
        return _channels_of_class(type(layer))
    terms, _, outputs = layer.equation.partition("->")
    kernel = terms.split(",")[1].replace(".", "")
    return {"kernel": tuple(axis for axis, letter in enumerate(kernel) if letter in outputs)}


def prepare_attention(every: Iterable[keras.layers.Layer]) -> None:
    """Gives attention layers of Keras the class in which their scores are a tensor, without quantizers yet."""
    for layer in every:
        if isinstance(layer, _ATTENTION):
            attach(layer, Placement(), "straight_through")


def attach(layer: keras.layers.Layer, placement: Placement, step: str) -> None:
    """Gives a layer the class in which its weights are rounded, and its quantizers.

    Args:
        layer: built, changed in place.
        placement: `Placement`.
        step: see `ActivationQuantizer`.
    """
    for name in _channels_of(layer):
        keras_private.disable_autocast(keras_private.weight(layer, name))  # The real weight stays in float32.
    function = vars(layer).get("activation") if isinstance(layer, PRODUCTS) else None
    has_preactivation = function not in (None, keras.activations.linear, *RECTIFIERS)

    def made(name: str, is_wanted: bool = True, fixed: tuple[float, float] | None = None) -> ActivationQuantizer | None:
        if not is_wanted:
            return None
        quantizer = ActivationQuantizer(step, fixed, name=name, dtype=layer.dtype_policy)
        quantizer.build()
        return quantizer

    # Layers without weights have no path.
    with keras_private.unlocked(layer), variable_scope(layer.path or layer.name):
        for position in sorted(placement.inputs):
            setattr(layer, _input_name(position), made(_input_name(position)))
        layer.preactivation_quantizer = made("preactivation_quantizer", has_preactivation)
        layer.output_quantizer = made("output_quantizer", placement.has_output, _FIXED.get(_last_function(layer)))
    plain: Any = type(layer)
    layer.__class__ = _integer_class(plain)


def has_weights(layer: keras.layers.Layer) -> bool:
    """Whether a layer has weights that are rounded."""
    return layer.built and bool(_channels_of(layer))


def rounded_weights(layer: keras.layers.Layer) -> dict[int, Tensor]:
    """The rounded weights of an integer layer, float32, by the ids of the variables."""
    return {id(keras_private.weight(layer, name)): _rounded(layer, name) for name in _channels_of(layer)}


def quantizers_of(layer: keras.layers.Layer) -> list[ActivationQuantizer]:
    """The quantizers of an integer layer."""
    return [each for each in keras_private.direct_layers(layer) if isinstance(each, ActivationQuantizer)]


def is_float_tensor(x: Tensor) -> bool:
    """Whether an argument is a tensor of floats."""
    return ops.is_tensor(x) and keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype))


def _last_function(layer: keras.layers.Layer) -> object:
    """The function that computes what a layer returns, where it is known."""
    if isinstance(layer, layers.Softmax):
        return keras.activations.softmax
    return vars(layer).get("activation") if isinstance(layer, (*PRODUCTS, layers.Activation)) else None


def _input_name(position: int) -> str:
    return f"input_quantizer_{position}"
