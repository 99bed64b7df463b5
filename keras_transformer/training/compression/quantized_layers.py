"""Layers of Keras whose weights are rounded in the forward pass.

A built layer gets the quantizers of its weight and inputs as sublayers, and a subclass of its own class, in which its
weight is what the quantizer makes of it. PyTorch's `torch.nn.utils.parametrize` does the same with modules: it works for
every layer that reads its weight, wherever that layer is, with no copy of its code.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, MutableMapping

import keras
from keras import ops

from keras_transformer.backend import keras_private
from keras_transformer.quantization.errors import WeightQuantizationError
from keras_transformer.quantization.kernels import Kernel
from keras_transformer.quantization.scheme import WeightScheme
from keras_transformer.training.adapters import adapter_variables
from keras_transformer.training.compression.fake_quantization import codes_of, stored_minimum, straight_through
from keras_transformer.training.compression.quantizers import InputQuantizer, WeightQuantizer, picked
from keras_transformer.utils.types import Config, Shape, Tensor


class FixedIntegers(WeightQuantizer):
    """A weight with the integers that it had at first, whose scales and minima are trained.

    There is one number to train for 32 or more weights, so that the optimizer needs little memory, and little text is
    enough; what GPTQ chose is kept. The weight itself gets no gradient.

    Reference: Kim et al., Memory-Efficient Fine-Tuning of Compressed Large Language Models via sub-4-bit Integer
    Quantization, arXiv 2305.14152, equation 2. Deviations: minima are trained too, in units of the first steps, and scales
    have the precision of files.
    """

    shift: keras.Variable = None

    def build(self, input_shape: Shape | None = None) -> None:
        super().build(input_shape)
        if self.minimum is not None:
            # Adam moves all variables as fast: in steps, minima move as fast as scales do.
            self.minimum.trainable = False
            self.shift = self.add_weight(
                name="shift", shape=self.minimum.shape, initializer="zeros", dtype="float32", autocast=False
            )

    def scales(self, x: Tensor, indices: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        step, minimum = super().scales(x, indices)
        if minimum is None:
            return step, None
        first, unit, shift = (picked(each, indices) for each in (self.minimum, self.initial_step, self.shift))
        return step, straight_through(stored_minimum, first + unit * shift)

    def _quantize(self, x, scales, axis, indices=None):
        step, minimum = scales
        values = self._first_codes(x, indices) * step
        return values if minimum is None else values + minimum

    def _codes(self, x, scale, minimum):
        return self._first_codes(x)

    def _first_codes(self, x, indices=None):
        step, minimum = picked(self.initial_step, indices), picked(self.minimum, indices)
        return ops.stop_gradient(codes_of(x, step, minimum, self.scheme))


# What is trained, and by which quantizer.
QUANTIZERS: dict[str, type[WeightQuantizer]] = {
    "learned": WeightQuantizer,
    "straight_through": WeightQuantizer,
    "scales_only": FixedIntegers,
}


class AwareLayer:
    """Mixin of a layer of a quantization-aware model.

    Attributes:
        plain_class: the class of the layer in the ordinary model.
    """

    plain_class: type[keras.layers.Layer]

    def save_own_variables(self: keras.layers.Layer, store: MutableMapping[str, Tensor]) -> None:
        """Saves weights as they are stored, not rounded, and adapters apart: their sum has no integers of the scheme."""
        keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self: keras.layers.Layer, store: MutableMapping[str, Tensor]) -> None:
        keras.layers.Layer.load_own_variables(self, store)

    def get_config(self: keras.layers.Layer) -> Config:
        raise WeightQuantizationError(
            f"{self.path!r} is part of a quantization-aware model and cannot be saved in another one: build the other model "
            "first, and call quantization_aware on the whole"
        )


class _Quantized(AwareLayer):
    """Mixin of a layer with quantizers."""

    weight_quantizer: WeightQuantizer
    input_quantizer: InputQuantizer | None

    def _stored(self: keras.layers.Layer) -> keras.Variable:
        raise NotImplementedError

    def _base_kernel(self: keras.layers.Layer) -> Tensor:
        """The rounded weight without an adapter, in the compute dtype."""
        return ops.cast(self.weight_quantizer.rounded(self._stored()), self.compute_dtype)

    def merged_weight(self: keras.layers.Layer) -> Tensor:
        """The rounded weight, with the adapter added, float32."""
        weight = self.weight_quantizer.rounded(self._stored())
        return weight + self._adapter(weight.shape) if self.lora_enabled else weight

    def _adapter(self: keras.layers.Layer, shape):
        a, b = (ops.convert_to_tensor(each) for each in adapter_variables(self))
        a, b = ops.reshape(a, (-1, self.lora_rank)), ops.reshape(b, (self.lora_rank, -1))
        return ops.reshape(self.lora_alpha / self.lora_rank * ops.matmul(a, b), shape)


class _QuantizedProduct(_Quantized):
    """Mixin of `Dense`, `EinsumDense` and subclasses."""

    def _stored(self: keras.layers.Layer) -> keras.Variable:
        return keras_private.kernel(self)

    @property
    def kernel(self: keras.layers.Layer) -> Tensor:
        """The rounded kernel, with the adapter added, in the compute dtype."""
        return ops.cast(self.merged_weight(), self.compute_dtype)

    def call(self: keras.layers.Layer, inputs: Tensor, *args: object, **kwargs: object) -> Tensor:
        inputs = inputs if self.input_quantizer is None else self.input_quantizer(inputs)
        return super().call(inputs, *args, **kwargs)  # type: ignore[misc]


class _QuantizedTable(_Quantized):
    """Mixin of `Embedding` and `ReversibleEmbedding`."""

    def _stored(self: keras.layers.Layer) -> keras.Variable:
        return keras_private.embeddings(self)

    @property
    def embeddings(self: keras.layers.Layer) -> Tensor:
        """The rounded table, with the adapter added, in the compute dtype."""
        return ops.cast(self.merged_weight(), self.compute_dtype)

    def call(self: keras.layers.Layer, inputs: Tensor, *args: object, **kwargs: object) -> Tensor:
        is_reversed = kwargs.get("reverse", bool(args and args[0]))
        if is_reversed:
            inputs = inputs if self.input_quantizer is None else self.input_quantizer(inputs)
        elif self.weight_quantizer.step is not None and not (self.lora_enabled or self.mask_zero):
            # Only the rows that are looked up.
            indices = ops.cast(inputs, "int32")
            return ops.cast(self.weight_quantizer.rounded_rows(self._stored(), indices), self.compute_dtype)
        return super().call(inputs, *args, **kwargs)  # type: ignore[misc]


@functools.cache
def _quantized_class(plain: type) -> type:
    mixin = _QuantizedTable if issubclass(plain, keras.layers.Embedding) else _QuantizedProduct
    return type(f"Quantized{plain.__name__}", (mixin, plain), {"plain_class": plain, "__module__": __name__})


def attach_quantizers(kernel: Kernel, scheme: WeightScheme, activation_range: str | None, step: str) -> WeightQuantizer:
    """Gives a layer the quantizers of its weight and, unless the range is None, its inputs."""
    layer = kernel.layer
    keras_private.disable_autocast(kernel.variable)  # The real weight and its scales stay in float32.
    is_reversible = isinstance(layer, keras.layers.ReversibleEmbedding)
    num_axes = kernel.contracted or int(is_reversible)
    with keras_private.unlocked(layer), variable_scope(layer.path):
        layer.weight_quantizer = QUANTIZERS[step](
            tuple(kernel.variable.shape), kernel.contracted, scheme, step, name="weight_quantizer"
        )
        layer.weight_quantizer.build()
        layer.input_quantizer = None
        if activation_range is not None and num_axes:
            layer.input_quantizer = InputQuantizer(
                num_axes, activation_range, name="input_quantizer", dtype=layer.dtype_policy
            )
            layer.input_quantizer.build()
        plain: object = type(layer)
        layer.__class__ = _quantized_class(plain)
    return layer.weight_quantizer


@contextlib.contextmanager
def variable_scope(path: str) -> Iterator[None]:
    """The scope of names of a layer, for variables that it gets later."""
    with contextlib.ExitStack() as stack:
        for name in path.split("/"):
            stack.enter_context(keras.name_scope(name))
        yield


def quantized_layers(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """The layers with quantizers, at any depth."""
    return [layer for layer in keras_private.flatten_layers(model) if isinstance(layer, _Quantized)]


@contextlib.contextmanager
def as_plain(layers: list[keras.layers.Layer]) -> Iterator[None]:
    """Context in which the layers have the classes that they had before: for their configs."""
    classes = [type(layer) for layer in layers]
    for layer in layers:
        layer.__class__ = layer.plain_class
    try:
        yield
    finally:
        for layer, cls in zip(layers, classes, strict=True):
            layer.__class__ = cls
